// Calls functions of the host when the GPU has reached values of semaphore words. Without the
// kernel driver's events there is no interrupt to sleep on, so a thread polls the words: without
// a pause for a while, then every kLookEvery, and not at all while nothing is awaited.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "devices/nv/heap.h"
#include "engine/base/mutex.h"

namespace telegrad::nv {

class Gpu;

// That a word of the host's memory is at least a value.
struct Moment {
  Block word;
  uint64_t value = 0;

  bool HasPassed() const {
    return value == 0 || std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word.host))
                                 .load(std::memory_order_acquire) >= value;
  }
};

class Watcher {
 public:
  static constexpr std::chrono::microseconds kLookEvery{50};

  explicit Watcher(Gpu& gpu);
  ~Watcher() { Stop(); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // Calls `function` once all moments have passed, or when the GPU is lost. `owner` is whom Drain
  // and IsIdle ask for.
  void Call(const void* owner, std::vector<Moment> moments, void (*function)(void*), void* data);
  // Makes all calls that are left; further ones are made at once.
  void Stop();
  // Waits until all calls of `owner` were made.
  void Drain(const void* owner);
  bool IsIdle(const void* owner) const;

 private:
  struct Wish {
    const void* owner;
    std::vector<Moment> moments;
    void (*function)(void*);
    void* data;
  };

  void Serve();
  bool IsIdleLocked(const void* owner) const TG_REQUIRES(mutex_);

  Gpu& gpu_;
  mutable Mutex mutex_;
  ConditionVariable changed_;
  std::vector<Wish> wishes_ TG_GUARDED_BY(mutex_);
  const void* calling_ TG_GUARDED_BY(mutex_) = nullptr;  // the owner of the call at hand
  bool stop_ TG_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace telegrad::nv
