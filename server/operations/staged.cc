// Allocates and charges host memory, and enqueues the copies through it in the session's queue.
#include "server/operations/staged.h"

#include <algorithm>
#include <utility>

#include "engine/base/account.h"
#include "engine/base/status.h"
#include "engine/execution/charged_memory.h"

namespace telegrad {

// What has ended may have done so since there was no room: then the operation tries again.
std::optional<Step> AwaitStaged(Turn& turn) {
  auto& [writes, longer, shorts] = turn.state<StagedCopies>();
  bool again = false;
  for (; !writes.empty(); writes.pop_front()) {
    if (!IsReached(writes.front().copied)) return turn.Wait(writes.front().copied);
    again = true;
  }
  for (; !shorts.empty(); shorts.pop_front()) {
    if (auto held = shorts.front().lock()) return turn.Wait(std::move(held));
    again = true;
  }
  if (longer) {
    if (auto held = longer->lock()) return turn.Wait(std::move(held));
    longer.reset();
    again = true;
  }
  if (!again) return std::nullopt;
  const TimelinePoint now{std::make_shared<Timeline>(), 1};
  now.timeline->Signal(1);
  return turn.Wait(now);
}

absl::StatusOr<std::shared_ptr<Memory>> Stage(const Turn& turn, const Buffer& buffer,
                                              uint64_t bytes) {
  const Accounts& accounts = turn.tenant().accounts;
  const auto amount = static_cast<int64_t>(bytes);
  auto paid = Reservation::Try(accounts.shared(Quota::kHostStaging), amount);
  if (!paid) {
    TG_ASSIGN_OR_RETURN(paid, Reservation::Take(accounts.shared(Quota::kDeviceMemory), amount));
  }
  TG_ASSIGN_OR_RETURN(auto memory, AllocInTransit(*buffer.device(), bytes));
  return Charged(std::move(memory), *std::move(paid));
}

absl::StatusOr<std::shared_ptr<Memory>> StageReceived(const Turn& turn, const Buffer& buffer,
                                                      const Payload& payload) {
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(payload.size(), 1));
  TG_ASSIGN_OR_RETURN(auto memory, AllocInTransit(*buffer.device(), bytes));
  payload.CopyTo(memory->host());
  return Charged(std::move(memory),
                 Reservation::Charge(turn.tenant().accounts.shared(Quota::kHostStaging),
                                     static_cast<int64_t>(bytes)));
}

absl::StatusOr<TimelinePoint> WriteStaged(const Turn& turn, const Payload& payload, uint64_t offset,
                                          const Buffer& buffer) {
  const auto size = static_cast<uint64_t>(payload.size());
  TG_ASSIGN_OR_RETURN(const auto staged, StageReceived(turn, buffer, payload));
  return EnqueueCopy(*turn.queues(), *buffer.device(), Part(buffer.memory(), offset, size),
                     Part(staged, 0, size), {});
}

absl::StatusOr<TimelinePoint> CopyOut(const Turn& turn, const Buffer& buffer, uint64_t offset,
                                      uint64_t bytes, const std::shared_ptr<Memory>& to) {
  const TimelinePoint waits[] = {buffer.last_write()};
  return EnqueueCopy(*turn.queues(), *buffer.device(), Part(to, 0, bytes),
                     Part(buffer.memory(), offset, bytes), waits);
}

absl::StatusOr<TimelinePoint> CopyInto(const Turn& turn, Buffer& to, uint64_t to_offset,
                                       BufferView from, const std::vector<TimelinePoint>& waits,
                                       uint64_t bytes) {
  return EnqueueCopy(*turn.queues(), *to.device(), Part(to.memory(), to_offset, bytes),
                     std::move(from), waits, QueueKind::kCompute);
}

void WrittenBehind(Turn& turn, Buffer& buffer, const TimelinePoint& point, uint64_t bytes) {
  buffer.UsedBy(point);
  buffer.WrittenBy(point);
  auto ended = [answer = turn.Later(/*quiet=*/true), bytes](const absl::Status& status) {
    if (status.ok()) answer.Count(Metric::kBytesWritten, static_cast<int64_t>(bytes));
    answer.Give(status);
  };
  if (point.timeline == nullptr) return ended(absl::OkStatus());
  point.timeline->OnReached(point.value, std::move(ended));
}

Step AwaitUses(Turn& turn, Buffer& buffer) {
  if (!IsReached(buffer.last_use())) return turn.Wait(buffer.last_use());
  if (!buffer.copied_reads().empty()) return turn.Wait(buffer.copied_reads().front());
  if (auto held = buffer.held_read()) return turn.Wait(std::move(held));
  return Step::kDone;
}

}  // namespace telegrad
