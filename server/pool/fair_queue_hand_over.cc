// Gives the device slices of the works that are next, and tells their ends.
#include <algorithm>
#include <deque>
#include <utility>

#include "engine/execution/prediction.h"
#include "server/pool/fair_queue_state.h"

namespace telegrad {
namespace {

// On the device at a time: two slices; or as many as are predicted to take this time together.
constexpr int kSlicesAhead = 2, kShortSlicesAhead = 16;
constexpr double kShortNs = kSegmentSeconds * 1e9 / 10;
// Where several tenants have sessions, any of them may come next, and what is on the device is what
// it waits for: two slices only if they are predicted to take no longer than one segment together.
// Otherwise the device gets its next slice when one has ended, which costs some microseconds of
// milliseconds. A tenant alone does not pay for that.
constexpr double kSharedNs = kSegmentSeconds * 1e9;
// A slice that is predicted to take longer could not be cut. It is handed out when the device has
// nothing else: whoever comes waits for one of them, not for two, and the moment in which the
// device has no work is short against it.
constexpr double kLongNs = kSegmentSeconds * 1e9 * 1.5;
// A submitter hands out so many slices that he may have to run himself; then the device's thread
// goes on.
constexpr int kSlicesBySubmitter = 4;
// After so many of whomever, whoever hands out leaves the rest to the device's thread: others may
// submit as fast as the device runs what they submit.
constexpr int kMostSlices = 64;
// Of what signalled points set off within each other.
constexpr int kMaxDepth = 8;

}  // namespace

// Whether the device may have a slice that is predicted to take `ns` behind what it has.
bool FairQueue::State::HasRoom(double ns) const {
  if (on_device == 0) return true;
  if (on_device < kShortSlicesAhead && on_device_ns + ns <= kShortNs) return true;
  if (on_device >= kSlicesAhead || ns > kLongNs) return false;
  return tenants < 2 || on_device_ns + ns <= kSharedNs;
}

// The next slice for the device; false if there is none, or the device has enough.
bool FairQueue::State::Choose(Handed* handed, Later* later) {
  while (!closed) {
    auto* const flow = static_cast<Flow*>(turns.Next());
    if (flow == nullptr) return false;
    Lane* const lane = flow->ready.begin()->second;
    const JobRef job = lane->jobs_.front();
    if (job->work.cancellation != nullptr) job->status = job->work.cancellation->Check();
    if (!job->status.ok()) {
      Pop(lane, later);
      turns.SetWaiting(flow, !flow->ready.empty());
      if (job->over()) EndLocked(job, later);
      continue;
    }
    const double ns = NsOf((*job->work.slices)[job->handed]);
    if (!HasRoom(ns)) return false;
    SetReady(lane, *job, false);  // until it has this one
    job->handing = true;
    ++job->on_device;
    ++on_device;
    on_device_ns += ns;
    turns.Charge(flow, ns);
    *handed = {job, job->handed, ns, clock.Ns()};
    if (job->handed == 0) {
      Observe(wait_time, handed->since - job->submitted, *job);
      int64_t never = 0;
      if (job->terms.taken != nullptr) {
        job->terms.taken->first_ns.compare_exchange_strong(never, handed->since);
      }
    }
    return true;
  }
  return false;
}

// `by_thread`: not on this thread, even if it is so short that its submitter could run it.
void FairQueue::State::HandOver(Handed handed, bool by_thread) {
  Job& job = *handed.job;
  const bool last = handed.index + 1 == job.work.slices->size();
  std::vector<TimelinePoint> waits;
  if (handed.index > 0) {
    waits.push_back(job.last);
  } else {
    waits = std::move(job.native);
  }
  const TimelinePoint now{by_thread ? std::make_shared<Timeline>() : nullptr, 1};
  if (by_thread) waits.push_back(now);
  const auto& commands = (*job.work.slices)[handed.index].commands;
  const auto point =
      queue.Submit(commands, last ? std::move(job.work.bindings) : job.work.bindings, waits,
                   job.work.trace, job.work.cancellation, ScalarsOf(*commands, job.work.scalars));
  if (by_thread) now.timeline->Signal(1);
  Later later;
  {
    const MutexLock lock(mutex);
    Lane* const lane = job.lane.get();
    job.handing = false;
    job.handed = handed.index + 1;
    if (point.ok()) job.last = *point;
    if (!point.ok() && job.status.ok()) job.status = point.status();
    if (job.all_handed() || !job.status.ok()) {
      Pop(lane, &later);
    } else {
      SetReady(lane, job, true);
    }
    turns.SetWaiting(lane->flow_, !lane->flow_->ready.empty());
  }
  Do(std::move(later));
  if (!point.ok()) return Ended(handed, point.status());
  point->timeline->OnReached(point->value,
                             [self = shared_from_this(), handed = std::move(handed)](
                                 const absl::Status& status) { self->Ended(handed, status); });
}

// The device has ended a slice. It runs one after the other, so this one ran from the end of the
// one before it, or from when it was handed over.
void FairQueue::State::Ended(const Handed& handed, const absl::Status& status) {
  Later later;
  Job& job = *handed.job;
  {
    const MutexLock lock(mutex);
    const int64_t now = clock.Ns();
    const int64_t ran = std::max<int64_t>(now - std::max(last_end, handed.since), 0);
    last_end = std::max(last_end, now);
    if (job.terms.taken != nullptr) {
      job.terms.taken->ns.fetch_add(ran, std::memory_order_relaxed);
      job.terms.taken->last_ns.store(now, std::memory_order_relaxed);
      if (job.terms.taken->ended_slice) job.terms.taken->ended_slice(ran);
    }
    job.ran += ran;
    Lane* const lane = job.lane.get();
    turns.Correct(lane->flow_, handed.predicted_ns, std::max(static_cast<double>(ran), kLeastNs));
    --on_device;
    on_device_ns -= handed.predicted_ns;
    Leave(*lane->flow_, job, handed.predicted_ns);
    --job.on_device;
    if (!status.ok() && job.status.ok()) job.status = status;
    if (!job.status.ok() && !job.handing && !lane->jobs_.empty() &&
        lane->jobs_.front() == handed.job) {
      Pop(lane, &later);
      turns.SetWaiting(lane->flow_, !lane->flow_->ready.empty());
    }
    if (job.over()) {
      Observe(run_time, job.ran, job);
      EndLocked(handed.job, &later);
    }
    if (jobs.empty()) turns.ForgetDebts();
  }
  Do(std::move(later));
  HandOut();
}

// A wait of the lane's first work is reached.
void FairQueue::State::Awaited(const JobRef& job) {
  Later later;
  {
    const MutexLock lock(mutex);
    if (closed) return;
    Lane* const lane = job->lane.get();  // which it has as long as it waits
    Look(lane, &later);
    turns.SetWaiting(lane->flow_, !lane->flow_->ready.empty());
  }
  Do(std::move(later));
  HandOut();
}

// What a signalled point sets off may be the end of another work, whose point sets off the next: a
// client decides how long such a chain is. So from some depth on each thread keeps a list instead
// of calling itself.
void FairQueue::State::Do(Later later) {
  static thread_local int depth = 0;
  static thread_local std::deque<std::pair<std::shared_ptr<State>, Later>> deferred;
  if (depth == kMaxDepth) {
    deferred.emplace_back(shared_from_this(), std::move(later));
    return;
  }
  ++depth;
  DoOne(std::move(later));
  while (depth == kMaxDepth && !deferred.empty()) {
    auto [state, next] = std::move(deferred.front());
    deferred.pop_front();
    state->DoOne(std::move(next));
  }
  --depth;
}

void FairQueue::State::DoOne(Later later) {
  for (const JobRef& job : later.over) {
    // First the references, then the point: whoever sees the point finds all that free.
    job->work = {};
    job->native.clear();
    job->last = {};
    job->lane.reset();
    job->ended->Signal(1, job->status);
    std::vector<std::shared_ptr<Countdown>> countdowns;
    {
      const MutexLock lock(mutex);
      ending.erase(job);
      countdowns.swap(job->countdowns);
    }
    for (const auto& countdown : countdowns) countdown->One();
  }
  for (Await& await : later.awaits) {
    const TimelinePoint point = std::move(await.point);
    point.timeline->OnReached(point.value, [self = shared_from_this(), job = std::move(await.job)](
                                               const absl::Status&) { self->Awaited(job); });
  }
  if (closed) {
    const MutexLock lock(mutex);
    all_over.notify_all();
  }
}

void FairQueue::State::HandOut() {
  for (int handed = 0;; ++handed) {
    Later later;
    Handed next;
    bool found = false;
    {
      const MutexLock lock(mutex);
      if (handed == 0 && handing_out) return;  // who does will find what there is
      // The end of a slice that the device still has finds nobody handing out, and goes on.
      const bool leaves = handed >= kMostSlices && on_device > 0;
      if (!leaves) found = Choose(&next, &later);
      handing_out = found;
      if (closed) all_over.notify_all();
    }
    Do(std::move(later));
    if (!found) return;
    HandOver(std::move(next), handed >= kSlicesBySubmitter);
  }
}

}  // namespace telegrad
