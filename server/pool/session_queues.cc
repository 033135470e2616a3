// Submits work of the session to the fair queue of its device, or directly to devices that have
// queues for each tenant on another server.
#include "server/pool/session_queues.h"

namespace telegrad {
namespace {

// A device that keeps tenants apart on its far side has its turns there, too; it tells here what it
// took.
absl::StatusOr<TimelinePoint> SubmitDirectly(Device& device, QueueKind kind, SlicedWork work,
                                             std::shared_ptr<DeviceTime> taken) {
  if (taken == nullptr) return DirectQueues().Submit(device, kind, std::move(work));
  const std::shared_ptr<RunTrace> wanted = work.trace;
  if (wanted == nullptr) {
    work.trace = std::shared_ptr<RunTrace>(taken, &taken->told);
    return DirectQueues().Submit(device, kind, std::move(work));
  }
  const auto told = std::make_shared<RunTrace>(wanted->detailed());
  work.trace = told;
  auto point = DirectQueues().Submit(device, kind, std::move(work));
  if (!point.ok()) return point;
  point->timeline->OnReached(point->value,
                             [taken = std::move(taken), told, wanted](const absl::Status&) {
                               taken->ns.fetch_add(told->ns(), std::memory_order_relaxed);
                               if (told->detailed()) {
                                 wanted->Add(told->events());
                               } else {
                                 wanted->AddTime(told->ns());
                               }
                             });
  return point;
}

}  // namespace

absl::StatusOr<TimelinePoint> SessionQueues::Submit(Device& device, QueueKind kind, SlicedWork work,
                                                    WorkTerms terms) {
  FairQueue* const queue = devices_.queue(device, kind);
  if (queue == nullptr) return SubmitDirectly(device, kind, std::move(work), terms.taken);
  std::shared_ptr<FairQueue::Lane> lane;
  {
    const MutexLock lock(mutex_);
    std::shared_ptr<FairQueue::Lane>& known = lanes_[queue];
    if (known == nullptr) known = queue->NewLane(share_);
    lane = known;
  }
  return queue->Submit(lane, std::move(work), std::move(terms));
}

}  // namespace telegrad
