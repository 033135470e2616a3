// How far a long job is, for whoever shows it to a person.
#pragma once

#include <cstdint>

#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe. Tasks that begin while others are under way belong to the same stretch of work; the
// first task after a pause begins a new one.
class WorkProgress {
 public:
  struct State {
    int64_t done = 0;
    int64_t total = 0;
  };
  void Begin(int64_t tasks) {
    const MutexLock lock(mutex_);
    if (state_.done == state_.total) state_ = {};
    state_.total += tasks;
  }
  // Tasks that failed count as done.
  void Done(int64_t tasks) {
    const MutexLock lock(mutex_);
    state_.done += tasks;
  }
  State state() const {
    const MutexLock lock(mutex_);
    return state_;
  }

 private:
  mutable Mutex mutex_;
  State state_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
