// The open streams of one method: their number, in total and for each tenant, and a way to end all
// of them. A stream holds a CallSlot while it is open; OpenCalls drops a tenant's entry when its
// last call ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"

namespace telegrad {

// Thread-safe.
template <typename Call>
class OpenCalls {
  struct Shared {
    Mutex mutex;
    std::list<std::weak_ptr<Call>> calls TG_GUARDED_BY(mutex);
    std::map<const void*, int64_t> of TG_GUARDED_BY(mutex);  // how many, by whose they are
    ConditionVariable changed;
    bool awaited TG_GUARDED_BY(mutex) = true;  // that there is none
  };

 public:
  class CallSlot {
   public:
    CallSlot() = default;
    CallSlot(CallSlot&& other) noexcept
        : shared_(std::move(other.shared_)), at_(other.at_), owner_(other.owner_) {}
    CallSlot& operator=(CallSlot&& other) noexcept {
      std::swap(shared_, other.shared_);
      std::swap(at_, other.at_);
      std::swap(owner_, other.owner_);
      return *this;
    }
    ~CallSlot() {
      if (shared_ == nullptr) return;
      const MutexLock lock(shared_->mutex);
      shared_->calls.erase(at_);
      if (--shared_->of[owner_] == 0) shared_->of.erase(owner_);
      if (shared_->calls.empty()) shared_->changed.notify_all();
    }
    explicit operator bool() const { return shared_ != nullptr; }

   private:
    friend class OpenCalls;
    using At = typename std::list<std::weak_ptr<Call>>::iterator;
    CallSlot(std::shared_ptr<Shared> shared, At at, const void* owner)
        : shared_(std::move(shared)), at_(at), owner_(owner) {}
    std::shared_ptr<Shared> shared_;  // null: none
    At at_;
    const void* owner_ = nullptr;
  };

  // None if `most` have one, or of the same owner `most_of_one`.
  CallSlot Enter(const std::shared_ptr<Call>& call, int64_t most, const void* owner,
                 int64_t most_of_one) {
    const MutexLock lock(shared_->mutex);
    if (static_cast<int64_t>(shared_->calls.size()) >= most) return {};
    const auto of_one = shared_->of.find(owner);
    if ((of_one != shared_->of.end() ? of_one->second : 0) >= most_of_one) return {};
    ++shared_->of[owner];
    return CallSlot(shared_, shared_->calls.insert(shared_->calls.end(), call), owner);
  }

  // Waits until there is none, or it is that late, or StopWaiting is called.
  void AwaitNone(std::chrono::system_clock::time_point deadline) const {
    ReleasableLock lock(shared_->mutex);
    while (shared_->awaited && !shared_->calls.empty() &&
           shared_->changed.wait_until(lock, deadline) != std::cv_status::timeout) {
    }
  }
  void StopWaiting() const {
    const MutexLock lock(shared_->mutex);
    shared_->awaited = false;
    shared_->changed.notify_all();
  }

  std::vector<std::shared_ptr<Call>> All() const {
    std::vector<std::shared_ptr<Call>> all;
    const MutexLock lock(shared_->mutex);
    for (const std::weak_ptr<Call>& weak : shared_->calls) {
      if (std::shared_ptr<Call> call = weak.lock()) all.push_back(std::move(call));
    }
    return all;
  }

 private:
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace telegrad
