// The thread takes a submission out of the ring, waits for its foreign points, runs it, drops what
// it held, and signals its point. Points of the own timeline need no waiting, for the queue is in
// order; only their failures count.
#include "devices/cpu/queue.h"

#include <algorithm>
#include <utility>

#include "devices/cpu/spin.h"
#include "engine/base/status.h"

namespace telegrad {

void CpuQueue::Bell::Ring() {
  // The lock makes the ring wait for whoever has looked and is about to sleep.
  {
    std::lock_guard lock(mutex);
  }
  rung.notify_all();
}

CpuQueue::CpuQueue(int threads, int capacity, absl::Duration wait_limit)
    : wait_limit_(wait_limit), pool_(threads), ring_(std::max(capacity, 1)) {
  thread_ = std::thread([this] { Serve(); });
}

CpuQueue::~CpuQueue() {
  bell_->stop.store(true);
  bell_->Ring();
  thread_.join();
}

absl::StatusOr<TimelinePoint> CpuQueue::Submit(std::shared_ptr<const CommandBuffer> commands,
                                               std::vector<BufferView> bindings,
                                               std::span<const TimelinePoint> waits) {
  auto encoded = std::dynamic_pointer_cast<const CpuCommandBuffer>(std::move(commands));
  if (encoded == nullptr) return InvalidArgument("the commands were not encoded for a CPU");
  TG_RETURN_IF_ERROR(encoded->Check(bindings));
  TimelinePoint point{timeline_, 0};
  {
    std::lock_guard lock(mutex_);
    const uint64_t before = submitted_.load(std::memory_order_relaxed);
    if (before - finished_ == ring_.size()) {
      return ResourceExhausted("the queue holds its limit of ", ring_.size(), " submissions");
    }
    for (const TimelinePoint& wait : waits) {
      if (wait.timeline == timeline_ && wait.value > before) {
        return InvalidArgument("a wait for point ", wait.value, " of a queue that is at ", before);
      }
    }
    point.value = before + 1;
    ring_[point.value % ring_.size()] = {std::move(encoded), std::move(bindings),
                                         std::vector(waits.begin(), waits.end())};
    submitted_.store(point.value);
  }
  bell_->Ring();
  return point;
}

TimelinePoint CpuQueue::last() const { return {timeline_, submitted_.load()}; }

bool CpuQueue::WaitForWork(uint64_t done) {
  const auto ready = [&] {
    return submitted_.load(std::memory_order_acquire) > done || bell_->stop.load();
  };
  if (pool_.threads() == 1 ? !ready() : !SpinUntil(ready)) {
    std::unique_lock lock(bell_->mutex);
    bell_->rung.wait(lock, ready);
  }
  return submitted_.load() > done;
}

void CpuQueue::Serve() {
  std::vector<void*> scratch;
  for (uint64_t done = 0; WaitForWork(done); ++done) {
    Submission work;
    {
      std::lock_guard lock(mutex_);
      work = std::move(ring_[(done + 1) % ring_.size()]);
    }
    const absl::Status status = AwaitAll(work.waits);
    if (status.ok()) work.commands->Run(work.bindings, pool_, &scratch);
    // First the references, then the place, then the point: whoever sees the point finds all that
    // free.
    work = {};
    {
      std::lock_guard lock(mutex_);
      finished_ = done + 1;
    }
    timeline_->Signal(done + 1, status);
  }
}

absl::Status CpuQueue::AwaitAll(std::span<const TimelinePoint> waits) {
  for (const TimelinePoint& point : waits) {
    if (point.timeline != nullptr) TG_RETURN_IF_ERROR(Await(point));
  }
  return absl::OkStatus();
}

absl::Status CpuQueue::Await(const TimelinePoint& point) {
  const auto reached = [&] { return point.timeline->value() >= point.value; };
  if (!reached()) {
    point.timeline->OnReached(point.value, [bell = bell_](const absl::Status&) { bell->Ring(); });
    const auto over = [&] { return reached() || bell_->stop.load(); };
    std::unique_lock lock(bell_->mutex);
    if (wait_limit_ == absl::InfiniteDuration()) {
      bell_->rung.wait(lock, over);
    } else if (!bell_->rung.wait_for(lock, absl::ToChronoNanoseconds(wait_limit_), over)) {
      return absl::DeadlineExceededError(
          StrCat("a point that the work waits for was not reached within ",
                 absl::FormatDuration(wait_limit_)));
    }
    if (!reached()) return absl::CancelledError("the device was closed before the work could run");
  }
  return point.timeline->StatusOf(point.value);
}

}  // namespace telegrad
