// One queue of one device, shared by tenants. Everything that the server has a device do goes
// through here:
//
//   lane     the work of one session, in the order in which it was submitted
//   tenant   of its lanes whose first work could begin: the one of the higher priority, then of
//            the earlier deadline, then the older one. A work that has begun goes before others of
//            its class, so that these can share memory for temporaries (see RunQueues)
//   queue    of the tenants with such a lane: deficit round robin by weight over device time, by
//            slices, as predicted and then as measured
//
// What waits for another queue, a slow upload or a failed predecessor waits in its lane and holds
// up nobody else. The device itself has two slices at a time, or a few very short ones: one that
// runs and one that is ready behind it. So whoever comes waits for no more than these. While
// several tenants have sessions, two slices are together no longer than a segment.
//
// No thread is added: whoever submits hands out what can be handed out, and so does the device's
// thread when it has ended something. On an idle device work goes straight through.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "devices/api/device.h"
#include "engine/base/clock.h"
#include "engine/base/share.h"
#include "engine/execution/run_queues.h"
#include "server/admin/histogram.h"

namespace telegrad {

// What a run has taken of devices so far.
struct DeviceTime {
  std::atomic<int64_t> ns{0};  // in which its slices ran, without any waiting
  // What devices tell that have no fair queue here, in place of `ns`.
  RunTrace told{/*detailed=*/false};
  int64_t all_ns() const { return ns.load(std::memory_order_relaxed) + told.ns(); }
  // When the first of them was handed to a device, and when the last one ended; 0: never.
  std::atomic<int64_t> first_ns{0}, last_ns{0};
  // The trace that the run belongs to, set before it is submitted; 0 and 0: none.
  uint64_t trace_high = 0, trace_low = 0;
  // May be empty; set before the run is submitted. Called with the time of each slice when the
  // slice has ended, under the queue's lock, so it only counts. Accounts follow a long run while it
  // runs.
  std::function<void(int64_t ns)> ended_slice;
};

// How a work stands to others of its tenant.
struct WorkTerms {
  int priority = 0;                 // the higher goes first
  int64_t deadline_ns = INT64_MAX;  // as the queue's clock has it
  std::shared_ptr<DeviceTime> taken =
      nullptr;  // may be null; complete when the work's point is reached
};

// Thread-safe.
class FairQueue {
 public:
  // `queue` outlives this.
  explicit FairQueue(Queue* queue, const Clock* clock = Clock::Steady());
  // What is with the device ends; all else fails with CANCELLED.
  ~FairQueue();
  FairQueue(const FairQueue&) = delete;
  FairQueue& operator=(const FairQueue&) = delete;

  class Lane;
  // For one session of that tenant. It may outlive the queue.
  std::shared_ptr<Lane> NewLane(std::shared_ptr<const Share> share);

  // The point is on a timeline of its own: what a work has ended with is kept for those who refer
  // to the point and is nobody else's business.
  TimelinePoint Submit(const std::shared_ptr<Lane>& lane, SlicedWork work, WorkTerms terms = {});

  // Of each work: how long it waited, from its submission until its first slice was handed to the
  // device, and how long its slices ran.
  const Histogram& wait_time() const;
  const Histogram& run_time() const;
  int64_t works() const;  // that wait or run
  // What each tenant has here now; looks at all of them.
  struct Waiting {
    std::string tenant;
    int64_t works = 0;   // that have begun or could begin
    double debt_ns = 0;  // that is paid before its next turn
  };
  std::vector<Waiting> Who() const;
  // Predicted: how long the device takes for all that it and this queue have.
  double backlog_ns() const;
  // Predicted: after how long a work of `ns` that this tenant submits now would have ended. What
  // goes before it within its tenant counts in full, what others have as much as they are served
  // meanwhile by their weights.
  double PredictEnd(const Share& share, const WorkTerms& terms, double ns) const;

  // Reached when everything that was submitted before has ended; does not fail.
  TimelinePoint Drained();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace telegrad
