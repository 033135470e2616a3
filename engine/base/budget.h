// A Budget bounds what one job may consume. Every loop over a client's data spends from it, so that
// a hostile graph ends in RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED or CANCELLED and never in a hang.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "absl/status/status.h"

namespace telegrad {

class Budget {
 public:
  struct Limits {
    int64_t nodes = 4'000'000;         // nodes made in all graphs of the job
    int64_t rewrites = 40'000'000;     // rule applications
    int64_t kernels = 20'000;          // kernels of one schedule
    int64_t bytes = int64_t{4} << 30;  // of values that are alive at once, where a job evaluates
    std::chrono::milliseconds time{60'000};
  };

  Budget() : Budget(Limits{}) {}
  explicit Budget(const Limits& limits);

  // Each spends `n` units and returns the first error met; once exhausted, always exhausted.
  absl::Status SpendNodes(int64_t n = 1);
  absl::Status SpendRewrites(int64_t n = 1);
  absl::Status SpendKernels(int64_t n = 1);
  // Memory comes back: an error leaves the budget as it was, and what was taken must be returned.
  absl::Status TakeBytes(int64_t n);
  void ReturnBytes(int64_t n) { bytes_ -= n; }
  // Deadline and cancellation; cheap enough to call every few thousand steps.
  absl::Status CheckTime();

  // Thread-safe: makes the next CheckTime return CANCELLED.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  const Limits& limits() const { return limits_; }
  int64_t nodes_spent() const { return nodes_; }
  int64_t rewrites_spent() const { return rewrites_; }

 private:
  Limits limits_;
  int64_t nodes_ = 0;
  int64_t rewrites_ = 0;
  int64_t kernels_ = 0;
  int64_t bytes_ = 0;
  std::chrono::steady_clock::time_point deadline_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace telegrad
