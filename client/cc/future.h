// The result of an operation that is under way. Copies share it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

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
    std::unique_lock lock(state_->mutex);
    state_->ready.wait(lock, [&] { return state_->result.has_value(); });
    return *state_->result;
  }

  bool has_result() const {
    std::lock_guard lock(state_->mutex);
    return state_->result.has_value();
  }

  // Calls back with the result: at once, or on a thread of the transport, where nothing may block.
  void Then(Callback callback) const {
    {
      std::lock_guard lock(state_->mutex);
      if (!state_->result.has_value()) {
        state_->callbacks.push_back(std::move(callback));
        return;
      }
    }
    callback(*state_->result);
  }

  // Sets the result; the first call counts.
  void Set(absl::StatusOr<T> result) const {
    std::vector<Callback> callbacks;
    {
      std::lock_guard lock(state_->mutex);
      if (state_->result.has_value()) return;
      state_->result.emplace(std::move(result));
      callbacks.swap(state_->callbacks);
    }
    state_->ready.notify_all();
    for (const Callback& callback : callbacks) callback(*state_->result);
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable ready;
    std::optional<absl::StatusOr<T>> result;
    std::vector<Callback> callbacks;
  };
  std::shared_ptr<State> state_;
};

}  // namespace telegrad
