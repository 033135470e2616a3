// The queues of all GPUs of one driver, by their timelines: a queue that is to wait for a point of
// another GPU finds the flight behind it here, and lets its own GPU wait for that.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "devices/api/timeline.h"
#include "devices/stream/flights.h"
#include "engine/base/mutex.h"

namespace telegrad::stream {

// Thread-safe.
class QueueTable {
 public:
  // For as long as the queue is open; what it had then has ended.
  void Add(std::shared_ptr<const Timeline> timeline, std::shared_ptr<Flights> flights) {
    const MutexLock lock(mutex_);
    const Timeline* const key = timeline.get();
    queues_[key] = {std::move(timeline), std::move(flights)};
  }
  void Remove(const Timeline& timeline) {
    const MutexLock lock(mutex_);
    queues_.erase(&timeline);
  }
  // Null where no queue has that timeline.
  std::shared_ptr<Flights> Find(const Timeline& timeline) const {
    const MutexLock lock(mutex_);
    const auto found = queues_.find(&timeline);
    return found == queues_.end() ? nullptr : found->second.second;
  }

 private:
  mutable Mutex mutex_;
  std::map<const Timeline*, std::pair<std::shared_ptr<const Timeline>, std::shared_ptr<Flights>>>
      queues_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad::stream
