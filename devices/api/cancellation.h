// A request that a submission ends early, or by a deadline. Queues check it before each command,
// so that a run whose caller has disconnected keeps the device for one segment at most.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/clock.h"

namespace telegrad {

// Thread-safe.
class Cancellation {
 public:
  Cancellation() = default;
  // Of a part of what `whole` is for, which ends with it, and is to end by `deadline_ns` as `clock`
  // has it; INT64_MAX: at any time.
  Cancellation(std::shared_ptr<const Cancellation> whole, const Clock* clock, int64_t deadline_ns)
      : whole_(std::move(whole)), clock_(clock), deadline_ns_(deadline_ns) {}

  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  // CANCELLED or DEADLINE_EXCEEDED.
  absl::Status Check() const {
    if (cancelled_.load(std::memory_order_relaxed)) {
      return absl::CancelledError("the run was cancelled");
    }
    if (deadline_ns_ != INT64_MAX && clock_->Ns() >= deadline_ns_) {
      return absl::DeadlineExceededError("the run's timeout has passed");
    }
    return whole_ == nullptr ? absl::OkStatus() : whole_->Check();
  }

 private:
  std::atomic<bool> cancelled_{false};
  const std::shared_ptr<const Cancellation> whole_;
  const Clock* const clock_ = nullptr;
  const int64_t deadline_ns_ = INT64_MAX;
};

}  // namespace telegrad
