// Memory that a read fills, and that whoever lent it may take back before the read has ended.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
class LentMemory {
 public:
  // False: it was taken back, and is not to be written to. Else it may be until End, by the same
  // user. `stop` is called without waiting if it is taken back meanwhile: it has the user end soon,
  // who needs none that does so anyway.
  bool Begin(const void* user, std::function<void()> stop = {}) {
    const MutexLock lock(mutex_);
    if (taken_back_) return false;
    users_[user] = std::move(stop);
    return true;
  }
  void End(const void* user) {
    std::function<void()> returned;
    {
      const MutexLock lock(mutex_);
      users_.erase(user);
      if (users_.empty()) returned.swap(returned_);
    }
    if (returned) returned();
  }
  // Nobody begins to write any more. `returned` is called when nobody writes: by this call, or by
  // the last End. The first call counts.
  void TakeBack(std::function<void()> returned) {
    {
      const MutexLock lock(mutex_);
      if (taken_back_) return;
      taken_back_ = true;
      for (const auto& [user, stop] : users_) {
        if (stop) stop();
      }
      if (!users_.empty()) {
        returned_.swap(returned);
        return;
      }
    }
    returned();
  }

 private:
  Mutex mutex_;
  bool taken_back_ TG_GUARDED_BY(mutex_) = false;
  std::map<const void*, std::function<void()>> users_ TG_GUARDED_BY(mutex_);
  std::function<void()> returned_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
