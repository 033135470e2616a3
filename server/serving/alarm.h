// Calls back at given times, on one thread of its own.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class Alarm {
 public:
  Alarm() : thread_([this] { Loop(); }) {}
  ~Alarm() {
    {
      const MutexLock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  // `call` is quick. Dropped where the alarm ends before.
  void At(int64_t ns, std::function<void()> call) {
    bool first = false;
    {
      const MutexLock lock(mutex_);
      first = calls_.empty() || ns < calls_.begin()->first;
      calls_.emplace(ns, std::move(call));
    }
    if (first) wake_.notify_all();
  }

 private:
  void Loop() {
    ReleasableLock lock(mutex_);
    while (!stop_) {
      if (calls_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const int64_t left = calls_.begin()->first - Clock::Steady()->Ns();
      if (left > 0) {
        wake_.wait_for(lock, std::chrono::nanoseconds(left));
        continue;
      }
      auto call = std::move(calls_.begin()->second);
      calls_.erase(calls_.begin());
      lock.unlock();
      call();
      call = nullptr;
      lock.lock();
    }
  }

  Mutex mutex_;
  ConditionVariable wake_;
  std::multimap<int64_t, std::function<void()>> calls_ TG_GUARDED_BY(mutex_);
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace telegrad
