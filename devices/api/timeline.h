// A timeline is a counter that only grows. A point on it is reached when the counter is at least
// its value. A point can also fail: then every wait for it ends with its Status.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace telegrad {

class ExportedTimeline;

class Timeline {
 public:
  Timeline();
  ~Timeline();

  using Callback = std::function<void(const absl::Status&)>;

  // The highest value reached so far.
  uint64_t value() const { return value_.load(std::memory_order_acquire); }

  // Reaches `value` and every one below. Each point that this call is the first to reach has
  // `status`; a point that is reached already keeps the one it has. Waiters run on the calling
  // thread, without the lock, lowest point first.
  void Signal(uint64_t value, const absl::Status& status = absl::OkStatus());

  // Blocks until `value` is reached; its status, or DEADLINE_EXCEEDED.
  absl::Status Wait(uint64_t value, absl::Duration timeout = absl::InfiniteDuration());

  // Calls back once `value` is reached: at once, on this thread, if it already is.
  void OnReached(uint64_t value, Callback callback);

  // A handle by which another process sees its points, see shared_timeline.h; the same each time.
  // RESOURCE_EXHAUSTED where the system has no memory to share.
  absl::StatusOr<std::string> Export();

  // The failure of `value`, or OK if it did not fail or is not reached yet.
  absl::Status StatusOf(uint64_t value) const;

 private:
  // Points [first, last], keyed by `last`, that failed with one status.
  struct Failure {
    uint64_t first;
    absl::Status status;
  };

  absl::Status StatusLocked(uint64_t value) const TG_REQUIRES(mutex_);
  void RecordFailure(uint64_t first, uint64_t last, const absl::Status& status) TG_REQUIRES(mutex_);

  mutable Mutex mutex_;
  ConditionVariable reached_;
  std::atomic<uint64_t> value_{0};
  std::map<uint64_t, Failure> failed_ TG_GUARDED_BY(mutex_);
  std::multimap<uint64_t, Callback> waiters_ TG_GUARDED_BY(mutex_);
  std::unique_ptr<ExportedTimeline> exported_ TG_GUARDED_BY(mutex_);  // null: it is not
};

struct TimelinePoint {
  std::shared_ptr<Timeline> timeline;  // null: reached from the start
  uint64_t value = 0;

  absl::Status Wait(absl::Duration timeout = absl::InfiniteDuration()) const {
    return timeline ? timeline->Wait(value, timeout) : absl::OkStatus();
  }
};

}  // namespace telegrad
