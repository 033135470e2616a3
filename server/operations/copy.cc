// Checks ranges and devices, waits for earlier uses of both buffers, and enqueues the copy,
// through host memory where no device reaches both.
#include "server/operations/copy.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/operations/staged.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

class CopyAction final : public Action {
 public:
  explicit CopyAction(CopyOp op) : op_(op) {}

  Step Do(Turn& turn) override;
  Step Refuse(Turn& turn, const absl::Status& error) override {
    const auto to = turn.handles().Find(op_.to);
    if (to.ok() && (*to)->memory() != nullptr) (*to)->SetPoison(error);
    return turn.Fail(error);
  }

 private:
  absl::Status CheckInside(const Buffer& to, const Buffer& from) const;
  absl::StatusOr<TimelinePoint> BetweenDevices(Turn& turn, Buffer& to, Buffer& from,
                                               std::vector<TimelinePoint> waits) const;

  const CopyOp op_;
};

absl::Status CopyAction::CheckInside(const Buffer& to, const Buffer& from) const {
  const auto inside = [&](const Buffer& buffer, uint64_t offset) {
    const auto size = static_cast<uint64_t>(buffer.bytes());
    return offset <= size && op_.bytes <= size - offset;
  };
  if (inside(to, op_.to_offset) && inside(from, op_.from_offset)) return absl::OkStatus();
  return InvalidArgument("copy of ", op_.bytes, " bytes from ", op_.from_offset, " of handle ",
                         op_.from, ", which has ", from.bytes(), ", to ", op_.to_offset,
                         " of handle ", op_.to, ", which has ", to.bytes());
}

absl::StatusOr<TimelinePoint> CopyAction::BetweenDevices(Turn& turn, Buffer& to, Buffer& from,
                                                         std::vector<TimelinePoint> waits) const {
  if (NeedsHost(*to.device(), *from.device())) {
    TG_ASSIGN_OR_RETURN(const auto host, Stage(turn, to, std::max<uint64_t>(op_.bytes, 1)));
    TG_ASSIGN_OR_RETURN(const TimelinePoint out,
                        CopyOut(turn, from, op_.from_offset, op_.bytes, host));
    waits.push_back(out);
    return CopyInto(turn, to, op_.to_offset, Part(host, 0, op_.bytes), waits, op_.bytes);
  }
  Device& device = CopyDevice(*to.device(), *from.device());
  return EnqueueCopy(*turn.queues(), device, Part(to.memory(), op_.to_offset, op_.bytes),
                     Part(from.memory(), op_.from_offset, op_.bytes), waits,
                     CopyKind(device, *to.device(), *from.device()),
                     &device == to.device() ? from.device() : to.device());
}

Step CopyAction::Do(Turn& turn) {
  const auto to_found = turn.handles().Find(op_.to), from_found = turn.handles().Find(op_.from);
  if (!to_found.ok()) return turn.Fail(to_found.status());
  Buffer& to = **to_found;
  if (to.memory() == nullptr) return turn.Fail(to.Poison());
  if (!from_found.ok()) return Refuse(turn, from_found.status());
  Buffer& from = **from_found;
  if (!from.Poison().ok()) return Refuse(turn, from.Poison());
  if (const absl::Status status = CheckInside(to, from); !status.ok()) return Refuse(turn, status);
  const bool whole = op_.to_offset == 0 && op_.bytes == static_cast<uint64_t>(to.bytes());
  if (!whole && !to.Poison().ok()) return turn.Fail(to.Poison());
  if (auto held = to.held_read()) return turn.Wait(std::move(held));
  std::vector<TimelinePoint> waits = to.copied_reads();
  if (from.last_write().timeline != nullptr) waits.push_back(from.last_write());
  if (!whole && to.last_write().timeline != nullptr) waits.push_back(to.last_write());
  const bool same_device = to.device() == from.device();
  if (!same_device) {
    if (const Step step = AwaitUses(turn, to); step != Step::kDone) return step;
    const bool through_host = NeedsHost(*to.device(), *from.device());
    if (through_host && turn.where() == OnThread::kDevice) return Step::kNeedsWorker;
  }
  const auto copied =
      same_device ? CopyInto(turn, to, op_.to_offset,
                             Part(from.memory(), op_.from_offset, op_.bytes), waits, op_.bytes)
                  : BetweenDevices(turn, to, from, std::move(waits));
  if (absl::IsResourceExhausted(copied.status()) && !same_device) {
    if (const std::optional<Step> step = AwaitStaged(turn)) return *step;
  }
  if (!copied.ok()) return Refuse(turn, copied.status());
  if (same_device) {
    from.UsedBy(*copied);  // behind all that used it before
  } else {
    const TimelinePoint read{std::make_shared<Timeline>(), 1};  // never fails
    from.ReadUntil(read);
    copied->timeline->OnReached(
        copied->value, [timeline = read.timeline](const absl::Status&) { timeline->Signal(1); });
  }
  WrittenBehind(turn, to, *copied, op_.bytes);
  return Step::kDone;
}

}  // namespace

std::unique_ptr<Action> MakeAction(CopyOp op) { return std::make_unique<CopyAction>(op); }

}  // namespace telegrad
