// The result of an operation that is under way. Copies share it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "engine/base/burst.h"
#include "engine/base/mutex.h"

namespace telegrad {

// The value of an operation that has none.
struct Done {};

template <typename T>
class Future {
 public:
  using Callback = std::function<void(const absl::StatusOr<T>&)>;

  Future() : state_(std::make_shared<State>()) {}

  // Blocks until the result is there. Not to be called from a callback.
  const absl::StatusOr<T>& Get() const {
    Burst::Flush();
    ReleasableLock lock(state_->mutex);
    while (!state_->set) state_->ready.wait(lock);
    return *state_->result;
  }

  bool has_result() const {
    MutexLock lock(state_->mutex);
    return state_->set;
  }

  // Calls back with the result: at once, or on a thread of the transport, where nothing may block.
  void Then(Callback callback) const {
    {
      MutexLock lock(state_->mutex);
      if (!state_->set) {
        state_->callbacks.push_back(std::move(callback));
        return;
      }
    }
    callback(*state_->result);
  }

  // Sets the result; the first call counts.
  void Set(absl::StatusOr<T> result) const {
    Callbacks callbacks;
    {
      MutexLock lock(state_->mutex);
      if (state_->set) return;
      state_->result.emplace(std::move(result));
      state_->set = true;
      callbacks.swap(state_->callbacks);
    }
    state_->ready.notify_all();
    for (const Callback& callback : callbacks) callback(*state_->result);
  }

 private:
  using Callbacks = absl::InlinedVector<Callback, 1>;  // there are seldom more
  struct State {
    Mutex mutex;
    ConditionVariable ready;
    bool set TG_GUARDED_BY(mutex) = false;
    Callbacks callbacks TG_GUARDED_BY(mutex);
    std::optional<absl::StatusOr<T>> result;  // written before `set` is, and never again
  };
  std::shared_ptr<State> state_;
};

}  // namespace telegrad
