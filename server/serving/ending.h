// The end of something that has several users, of which others are told without a thread that
// waits for it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class Ending {
 public:
  // Calls `then` once it has ended: on the thread that ends it, or at once where it has. `then` is
  // quick, and is dropped uncalled where this goes before the end.
  void Then(std::function<void()> then) {
    {
      const MutexLock lock(mutex_);
      if (!ended_) {
        waiting_.push_back(std::move(then));
        return;
      }
    }
    then();
  }
  // Again: of no effect.
  void End() {
    std::vector<std::function<void()>> waiting;
    {
      const MutexLock lock(mutex_);
      ended_ = true;
      waiting.swap(waiting_);
    }
    for (const auto& then : waiting) then();
  }
  bool ended() const {
    const MutexLock lock(mutex_);
    return ended_;
  }

 private:
  mutable Mutex mutex_;
  bool ended_ TG_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> waiting_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
