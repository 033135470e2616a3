// What the thread of a queue sleeps on. Whatever has work for it wakes it by ringing: other
// threads, and the GPU.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

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
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    waiting_.notify_all();
  }

  // Until it is rung, if it was not since the last time, and at most for `longest`.
  void Await(std::chrono::nanoseconds longest) {
    std::unique_lock lock(mutex_);
    waiting_.wait_for(lock, longest, [&] { return rung_; });
    rung_ = false;
  }
  void Await() {
    std::unique_lock lock(mutex_);
    waiting_.wait(lock, [&] { return rung_; });
    rung_ = false;
  }

 private:
  std::atomic<int64_t> promised_{0};
  std::mutex mutex_;
  std::condition_variable waiting_;
  bool rung_ = false;
};

}  // namespace telegrad::stream
