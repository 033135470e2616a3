// The bytes are written directly to the buffer once nothing else uses it. The operation does not
// wait for that: what follows goes on, and what uses the buffer waits for the point at which the
// last byte is there. So two servers that send to each other do not wait for each other.
#include "server/operations/receive.h"

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "server/data/peers.h"
#include "server/operations/staged.h"
#include "server/session/turn.h"

namespace telegrad {
namespace {

// Calls once all points are reached, with the failure of the one that counts.
class WhenAll {
 public:
  using Callback = std::function<void(const absl::Status&)>;

  static void Await(const std::vector<TimelinePoint>& points, const TimelinePoint& counts,
                    Callback callback) {
    const auto all = std::make_shared<WhenAll>();
    all->callback_ = std::move(callback);
    all->counts_ = counts;
    all->open_ = points.size() + 1;
    for (const TimelinePoint& point : points) {
      point.timeline->OnReached(point.value, [all](const absl::Status&) { all->One(); });
    }
    all->One();
  }

 private:
  void One() {
    if (open_.fetch_sub(1) != 1) return;
    callback_(counts_.timeline == nullptr ? absl::OkStatus()
                                          : counts_.timeline->StatusOf(counts_.value));
  }

  Callback callback_;
  TimelinePoint counts_;
  std::atomic<size_t> open_{0};
};

class ReceiveAction final : public Action {
 public:
  explicit ReceiveAction(ReceiveOp op) : op_(op) {}

  void Arrive(const Arrival& arrival) override {
    cancellation_ = std::make_shared<Cancellation>(arrival.session, arrival.env.clock, INT64_MAX);
    auto upload = arrival.transfers.Claim(op_.transfer);
    found_ = upload.status();
    if (upload.ok()) upload_ = *std::move(upload);
  }
  std::shared_ptr<Cancellation> cancellation() const override { return cancellation_; }
  Step Do(Turn& turn) override;
  Step Refuse(Turn& turn, const absl::Status& error) override {
    if (upload_ != nullptr) turn.transfers().Finish(op_.transfer);
    const auto buffer = turn.handles().Find(op_.handle);
    if (buffer.ok() && (*buffer)->memory() != nullptr) (*buffer)->SetPoison(error);
    return turn.Fail(error);
  }

 private:
  absl::Status Check(const Buffer& buffer) const;
  void Begin(Turn& turn, Buffer& buffer, bool whole);

  const ReceiveOp op_;
  bool paid_ = false;  // for its transfer
  absl::Status found_;
  std::shared_ptr<Upload> upload_;
  std::shared_ptr<Cancellation> cancellation_;
};

absl::Status ReceiveAction::Check(const Buffer& buffer) const {
  TG_RETURN_IF_ERROR(found_);
  const auto size = static_cast<uint64_t>(buffer.bytes());
  if (op_.offset > size || op_.bytes > size - op_.offset) {
    return InvalidArgument("receive of handle ", op_.handle, ": ", op_.bytes, " bytes at ",
                           op_.offset, " do not fit into its ", size);
  }
  const uint64_t admitted = upload_->Stat().bytes;
  if (admitted == op_.bytes) return absl::OkStatus();
  return InvalidArgument("receive of handle ", op_.handle, ": ", op_.bytes, " bytes of transfer ",
                         op_.transfer, ", which was admitted with ", admitted);
}

Step ReceiveAction::Do(Turn& turn) {
  const auto found = turn.handles().Find(op_.handle);
  if (!found.ok()) return Refuse(turn, found.status());
  Buffer& buffer = **found;
  if (buffer.memory() == nullptr) return Refuse(turn, buffer.Poison());
  if (const absl::Status status = Check(buffer); !status.ok()) return Refuse(turn, status);
  if (!paid_) {
    const absl::Status taken = turn.tenant().TakeTransfer(op_.bytes, turn.env().clock->Ns());
    if (!taken.ok()) return Refuse(turn, taken);
    paid_ = true;
  }
  const bool whole = op_.offset == 0 && op_.bytes == static_cast<uint64_t>(buffer.bytes());
  if (!whole && !buffer.Poison().ok()) {
    turn.transfers().Finish(op_.transfer);
    return turn.Fail(buffer.Poison());
  }
  if (auto held = buffer.held_read()) return turn.Wait(std::move(held));
  turn.env().peers->EndWith(upload_, cancellation_);
  Begin(turn, buffer, whole);
  return Step::kDone;
}

void ReceiveAction::Begin(Turn& turn, Buffer& buffer, bool whole) {
  std::vector<TimelinePoint> waits = buffer.copied_reads();
  for (const TimelinePoint& point : {buffer.last_use(), buffer.last_write()}) {
    if (!IsReached(point)) waits.push_back(point);
  }
  // A part inherits the failure of what writes the rest.
  const TimelinePoint rest = whole ? TimelinePoint() : buffer.last_write();
  const TimelinePoint ended = upload_->ended();
  // A transfer can end before what it waits for, and what follows must wait for both.
  const TimelinePoint over{std::make_shared<Timeline>(), 1};
  const TimelinePoint free{std::make_shared<Timeline>(), 1};  // never fails
  buffer.UsedBy(over);
  buffer.WrittenBy(over);
  buffer.ReadUntil(free);
  std::vector<TimelinePoint> all = waits;
  all.push_back(ended);
  WhenAll::Await(all, ended, [over, free](const absl::Status& status) {
    over.timeline->Signal(1, status);
    free.timeline->Signal(1);
  });
  ended.timeline->OnReached(ended.value, [answer = turn.Later(/*quiet=*/false, cancellation_),
                                          transfer = op_.transfer](const absl::Status& status) {
    answer.transfers().Finish(transfer);
    answer.Give(status);
  });
  WhenAll::Await(waits, rest,
                 [workers = turn.env().workers, share = turn.queues()->share(), upload = upload_,
                  target = Part(buffer.memory(), op_.offset, op_.bytes),
                  device = buffer.device()](const absl::Status& status) {
                   if (!status.ok()) return upload->End(status);
                   // What has arrived is copied there.
                   if (upload->staged_bytes() == 0) return upload->Open(target, device);
                   workers->Post([upload, target, device] { upload->Open(target, device); }, share);
                 });
}

}  // namespace

std::unique_ptr<Action> MakeAction(ReceiveOp op) { return std::make_unique<ReceiveAction>(op); }

}  // namespace telegrad
