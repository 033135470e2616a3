// The thread takes a submission out of the ring, waits for its foreign points, runs it, drops what
// it held, and signals its point. Points of the own timeline need no waiting, for the queue is in
// order; only their failures count. A submitter that runs its own work does the same in its place:
// busy_ is the right to, so there is one at a time, and what it calls back submits to the ring.
#include "devices/api/host_queue.h"

#include <algorithm>
#include <utility>

#include "devices/api/spin.h"
#include "engine/base/burst.h"
#include "engine/base/status.h"

namespace telegrad {

void HostQueue::Bell::Ring() {
  // The lock makes the ring wait for whoever has looked and is about to sleep.
  {
    MutexLock lock(mutex);
  }
  rung.notify_all();
}

HostQueue::HostQueue(HostQueueOptions options, std::unique_ptr<QueueRunner> runner)
    : Queue(options.name, options.takes),
      options_(std::move(options)),
      runner_(std::move(runner)),
      ring_(std::max(options_.capacity, 1)) {
  thread_ = std::thread([this] { Serve(); });
}

HostQueue::~HostQueue() {
  bell_->stop.store(true);
  bell_->Ring();
  thread_.join();
}

absl::StatusOr<TimelinePoint> HostQueue::Enqueue(QueueWork work,
                                                 std::span<const TimelinePoint> waits) {
  TG_RETURN_IF_ERROR(runner_->Check(work.commands.get(), work.bindings));
  const auto is_reached = [](const TimelinePoint& p) {
    return p.timeline == nullptr || p.timeline->value() >= p.value;
  };
  const bool quick = (work.submitter_waits || runner_->IsQuick(*work.commands, work.scalars)) &&
                     std::ranges::all_of(waits, is_reached);
  TimelinePoint point{timeline_, 0};
  Submission submission{std::move(work), {waits.begin(), waits.end()}};
  bool here, ring;
  {
    MutexLock lock(mutex_);
    const uint64_t before = submitted_.load(std::memory_order_relaxed);
    if (before - finished_ == ring_.size()) {
      return ResourceExhausted(name(), ": the queue holds its limit of ", ring_.size(),
                               " submissions");
    }
    for (const TimelinePoint& wait : waits) {
      if (wait.timeline == timeline_ && wait.value > before) {
        return InvalidArgument(name(), ": a wait for point ", wait.value, " of a queue that is at ",
                               before);
      }
    }
    point.value = before + 1;
    ring = !busy_.load(std::memory_order_relaxed);
    here = quick && ring && ended_.load(std::memory_order_relaxed) == before;
    if (here) {
      busy_.store(true);
    } else {
      ring_[point.value % ring_.size()] = std::move(submission);
    }
    submitted_.store(point.value);
  }
  if (here) {
    Complete(point.value, std::move(submission));
  } else if (ring) {
    bell_->Ring();
  }
  return point;
}

TimelinePoint HostQueue::last() const { return {timeline_, submitted_.load()}; }

std::function<void()> HostQueue::Waker() const {
  return [bell = bell_] { bell->Ring(); };
}

// True once there may be work to run, false once there will be none. It may have gone by the time
// that one looks, when a submitter runs its own: only an empty queue that was stopped has an end.
bool HostQueue::WaitForWork() {
  const auto work = [&] { return !busy_.load() && submitted_.load() > ended_.load(); };
  const auto ready = [&] { return work() || bell_->stop.load(); };
  if (options_.spins ? !SpinUntil(ready) : !ready()) {
    ReleasableLock lock(bell_->mutex);
    bell_->rung.wait(lock, ready);
  }
  return !bell_->stop.load() || work();
}

// What the end of quick work has others send goes out together, before work that is not quick and
// before the thread waits.
void HostQueue::Serve() {
  const Burst burst;
  const auto is_more = [&] { return !busy_.load() && submitted_.load() > ended_.load(); };
  while (true) {
    if (!is_more() || !burst.MayGoOn()) Burst::Flush();
    if (!WaitForWork()) return;
    Submission submission;
    uint64_t value;
    {
      MutexLock lock(mutex_);
      value = ended_.load() + 1;
      if (busy_.load() || submitted_.load() < value) continue;  // a submitter was faster
      busy_.store(true);
      submission = std::move(ring_[value % ring_.size()]);
    }
    if (!runner_->IsQuick(*submission.work.commands, submission.work.scalars)) Burst::Flush();
    Complete(value, std::move(submission));
  }
}

// By whoever has set busy_.
void HostQueue::Complete(uint64_t value, Submission submission) {
  const absl::Status status = RunOne(submission);
  // First the references, then the place, then the point: whoever sees the point finds all that
  // free.
  submission = {};
  {
    MutexLock lock(mutex_);
    finished_ = value;
  }
  timeline_->Signal(value, status);
  bool more;
  {
    MutexLock lock(mutex_);
    ended_.store(value);
    busy_.store(false);
    more = submitted_.load() > value;
  }
  if (more && std::this_thread::get_id() != thread_.get_id()) bell_->Ring();
}

absl::Status HostQueue::RunOne(const Submission& submission) {
  for (const TimelinePoint& point : submission.waits) {
    if (point.timeline != nullptr) TG_RETURN_IF_ERROR(Await(point));
  }
  const QueueWork& work = submission.work;
  RunControl control{nullptr, work.cancellation.get(), work.scalars};
  if (work.trace == nullptr) return runner_->Run(*work.commands, work.bindings, control);
  std::vector<TraceEvent> events;
  control.events = &events;
  const absl::Status status = runner_->Run(*work.commands, work.bindings, control);
  for (TraceEvent& event : events) event.queue = name();
  work.trace->Add(std::move(events));
  return status;
}

absl::Status HostQueue::Await(const TimelinePoint& point) {
  const auto reached = [&] { return point.timeline->value() >= point.value; };
  if (!reached()) {
    Burst::Flush();  // which the point may depend on
    point.timeline->OnReached(point.value, [bell = bell_](const absl::Status&) { bell->Ring(); });
    const auto over = [&] { return reached() || bell_->stop.load() || !runner_->Health().ok(); };
    ReleasableLock lock(bell_->mutex);
    if (options_.wait_limit == absl::InfiniteDuration()) {
      bell_->rung.wait(lock, over);
    } else if (!bell_->rung.wait_for(lock, absl::ToChronoNanoseconds(options_.wait_limit), over)) {
      return absl::DeadlineExceededError(
          StrCat("a point that the work waits for was not reached within ",
                 absl::FormatDuration(options_.wait_limit)));
    }
    if (!reached()) {
      TG_RETURN_IF_ERROR(runner_->Health());
      return absl::CancelledError("the device was closed before the work could run");
    }
  }
  return point.timeline->StatusOf(point.value);
}

}  // namespace telegrad
