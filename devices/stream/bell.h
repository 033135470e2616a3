// What the thread of a queue sleeps on. Whatever has work for it wakes it by ringing: other
// threads, and the GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>

#include "engine/base/mutex.h"

namespace telegrad::stream {

class Bell {
 public:
  // A GPU is told to ring, by RingAsPromised, which the driver may do at any time from now on: the
  // bell has to outlive that.
  void Promise() { ++promised_; }
  void Withdraw() { --promised_; }
  void RingAsPromised() {
    Ring();
    --promised_;
  }
  bool is_promised() const { return promised_ > 0; }

  void Ring() {
    {
      const MutexLock lock(mutex_);
      rung_ = true;
    }
    waiting_.notify_all();
  }

  // Until it is rung, if it was not since the last time, and at most for `longest`.
  void Await(std::chrono::nanoseconds longest) {
    ReleasableLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + longest;
    while (!rung_ && waiting_.wait_until(lock, until) != std::cv_status::timeout) {
    }
    rung_ = false;
  }
  void Await() {
    ReleasableLock lock(mutex_);
    while (!rung_) waiting_.wait(lock);
    rung_ = false;
  }

 private:
  std::atomic<int64_t> promised_{0};
  Mutex mutex_;
  ConditionVariable waiting_;
  bool rung_ TG_GUARDED_BY(mutex_) = false;
};

}  // namespace telegrad::stream
