// Events are added under a lock, by the threads of all queues.
#include "devices/api/trace.h"

#include <chrono>
#include <iterator>

namespace telegrad {

int64_t SteadyNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void RunTrace::Add(std::vector<TraceEvent> events) {
  for (const TraceEvent& event : events) AddTime(event.end_ns - event.begin_ns);
  if (!detailed_) return;
  const MutexLock lock(mutex_);
  events_.insert(events_.end(), std::make_move_iterator(events.begin()),
                 std::make_move_iterator(events.end()));
}

std::vector<TraceEvent> RunTrace::events() const {
  const MutexLock lock(mutex_);
  return events_;
}

}  // namespace telegrad
