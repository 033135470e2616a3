// Calls a function at intervals on a thread of its own, until it is destroyed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <thread>
#include <utility>

#include "engine/base/mutex.h"

namespace telegrad {

class Ticker {
 public:
  Ticker(std::chrono::milliseconds interval, std::function<void()> tick)
      : interval_(interval), tick_(std::move(tick)), thread_([this] { Loop(); }) {}
  ~Ticker() {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  void Loop() {
    ReleasableLock lock(mutex_);
    while (true) {
      const auto until = std::chrono::steady_clock::now() + interval_;
      while (!stop_ && wake_.wait_until(lock, until) != std::cv_status::timeout) {
      }
      if (stop_) return;
      lock.unlock();
      tick_();
      lock.lock();
    }
  }

  const std::chrono::milliseconds interval_;
  const std::function<void()> tick_;
  Mutex mutex_;
  ConditionVariable wake_;
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace telegrad
