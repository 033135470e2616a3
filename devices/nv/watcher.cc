// The thread keeps a list of moments and their functions, and calls a function once all of its
// moments have passed.
#include "devices/nv/watcher.h"

#include <algorithm>
#include <utility>

#include "devices/nv/gpu.h"

namespace telegrad::nv {

Watcher::Watcher(Gpu& gpu) : gpu_(gpu), thread_([this] { Serve(); }) {}

void Watcher::Stop() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(stop_, true)) return;
  }
  changed_.notify_all();
  thread_.join();
}

void Watcher::Call(const void* owner, std::vector<Moment> moments, void (*function)(void*),
                   void* data) {
  {
    ReleasableLock lock(mutex_);
    if (stop_) {
      lock.unlock();
      return function(data);
    }
    wishes_.push_back({owner, std::move(moments), function, data});
  }
  changed_.notify_all();
}

bool Watcher::IsIdle(const void* owner) const {
  const MutexLock lock(mutex_);
  return IsIdleLocked(owner);
}

bool Watcher::IsIdleLocked(const void* owner) const {
  return calling_ != owner && std::ranges::find(wishes_, owner, &Wish::owner) == wishes_.end();
}

void Watcher::Drain(const void* owner) {
  ReleasableLock lock(mutex_);
  while (!IsIdleLocked(owner)) changed_.wait(lock);
}

void Watcher::Serve() {
  ReleasableLock lock(mutex_);
  while (true) {
    while (!stop_ && wishes_.empty()) changed_.wait(lock);
    const bool lost = stop_ || !gpu_.Check().ok();
    const auto ready = std::ranges::find_if(wishes_, [&](const Wish& wish) {
      return lost || std::ranges::all_of(wish.moments, &Moment::HasPassed);
    });
    if (ready != wishes_.end()) {
      const Wish wish = std::move(*ready);
      wishes_.erase(ready);
      calling_ = wish.owner;
      lock.unlock();
      wish.function(wish.data);
      lock.lock();
      calling_ = nullptr;
      changed_.notify_all();
      continue;
    }
    if (stop_) return;
    changed_.wait_for(lock, kLookEvery);
  }
}

}  // namespace telegrad::nv
