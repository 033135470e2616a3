// The wish that a submission ends early. Queues look at it before each command, so that a run whose
// caller is gone keeps the device for one segment at most.
#pragma once

#include <atomic>

#include "absl/status/status.h"

namespace telegrad {

// Thread-safe.
class Cancellation {
 public:
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  absl::Status Check() const {
    if (!cancelled_.load(std::memory_order_relaxed)) return absl::OkStatus();
    return absl::CancelledError("the run was cancelled");
  }

 private:
  std::atomic<bool> cancelled_{false};
};

}  // namespace telegrad
