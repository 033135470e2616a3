#include "server/pool/session_queues.h"

namespace telegrad {

absl::StatusOr<TimelinePoint> SessionQueues::Submit(Device& device, QueueKind kind, SlicedWork work,
                                                    WorkTerms terms) {
  FairQueue* const queue = devices_.queue(device, kind);
  if (queue == nullptr) return DirectQueues().Submit(device, kind, std::move(work));
  std::shared_ptr<FairQueue::Lane> lane;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<FairQueue::Lane>& known = lanes_[queue];
    if (known == nullptr) known = queue->NewLane(share_);
    lane = known;
  }
  return queue->Submit(lane, std::move(work), std::move(terms));
}

}  // namespace telegrad
