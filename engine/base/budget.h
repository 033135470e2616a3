// A Budget bounds what one job may consume. Every loop over a client's data spends from it, so that
// a hostile graph ends in RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED or CANCELLED and never in a hang.
// Apart from the deadline it counts, so the same graph ends at the same place every time. An error
// names the budget, its limit and what was being done.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/share.h"
#include "engine/base/work_progress.h"

namespace telegrad {

class Budget {
 public:
  struct Limits {
#define BUDGET(name, default_value, what) int64_t name = default_value;
#include "engine/base/budget.def"
#undef BUDGET
    std::chrono::milliseconds time{60'000};
  };

  Budget() : Budget(Limits{}) {}
  explicit Budget(const Limits& limits);
  // One of many tasks of a job, which may run in threads of their own: counts nodes, rewrites and
  // steps anew; time, bytes, code and cancellation are those of the whole, which outlives it.
  explicit Budget(Budget* whole);

  // Each spends `n` units and returns the first error met; once exhausted, always exhausted.
  absl::Status SpendNodes(int64_t n = 1);
  absl::Status SpendRewrites(int64_t n = 1);
  absl::Status SpendSteps(int64_t n = 1);
  absl::Status SpendKernels(int64_t n = 1);
  absl::Status SpendCode(int64_t bytes);
  // Memory can be given back: a failed call takes nothing, and the caller returns what a successful
  // one took.
  absl::Status TakeBytes(int64_t n);
  void ReturnBytes(int64_t n) { whole_->bytes_.fetch_sub(n, std::memory_order_relaxed); }
  // The error of a kernel that has grown beyond limits().expression.
  absl::Status ExpressionError() const;
  // Deadline and cancellation; cheap enough to call every few thousand steps.
  absl::Status CheckTime();
  // How often a thread that waits for something else calls CheckTime.
  static constexpr std::chrono::milliseconds kTick{20};

  // Thread-safe: makes the next CheckTime return CANCELLED.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  // The tenant for which the job is done; null: none in particular. Set before the job begins.
  void SetShare(std::shared_ptr<const Share> share) { whole_->share_ = std::move(share); }
  const std::shared_ptr<const Share>& share() const { return whole_->share_; }
  // Who shows how many kernels of the job are compiled; null: nobody. Set before the job begins.
  void SetProgress(std::shared_ptr<WorkProgress> progress) {
    whole_->progress_ = std::move(progress);
  }
  WorkProgress* progress() const { return whole_->progress_.get(); }
  // Processor time that other threads and processes have spent on the job. Thread-safe.
  void Worked(int64_t ns) { whole_->worked_ns_.fetch_add(ns, std::memory_order_relaxed); }
  int64_t worked_ns() const { return whole_->worked_ns_.load(std::memory_order_relaxed); }

  const Limits& limits() const { return limits_; }
  int64_t nodes_spent() const { return nodes_; }
  int64_t rewrites_spent() const { return rewrites_; }
  int64_t bytes_held() const { return whole_->bytes_.load(std::memory_order_relaxed); }

  // Memory that is given back when it goes out of scope.
  class Held {
   public:
    explicit Held(Budget* budget) : budget_(budget) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { budget_->ReturnBytes(bytes_); }
    absl::Status Grow(int64_t bytes) {
      absl::Status status = budget_->TakeBytes(bytes);
      if (status.ok()) bytes_ += bytes;
      return status;
    }
    // To `bytes` in all; never less than before.
    absl::Status GrowTo(int64_t bytes) { return bytes > bytes_ ? Grow(bytes - bytes_) : Grow(0); }

   private:
    Budget* budget_;
    int64_t bytes_ = 0;
  };

  // Errors say "while `what`" as long as it lives.
  class Doing {
   public:
    Doing(Budget* budget, std::string_view what) : budget_(budget), outer_(budget->doing_) {
      budget->doing_ = what;
    }
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;
    ~Doing() { budget_->doing_ = outer_; }

   private:
    Budget* budget_;
    std::string_view outer_;
  };

 private:
  absl::Status Spent(int64_t limit, std::string_view what) const;
  absl::Status Spend(int64_t n, int64_t limit, std::string_view what, int64_t* spent) const {
    *spent += n;
    return *spent <= limit ? absl::OkStatus() : Spent(limit, what);
  }

  Limits limits_;
  Budget* const whole_;  // itself, unless it is a task's
  std::string_view doing_ = "working";
  int64_t nodes_ = 0;
  int64_t rewrites_ = 0;
  int64_t steps_ = 0;
  int64_t kernels_ = 0;
  std::atomic<int64_t> bytes_{0};
  std::atomic<int64_t> code_{0};
  std::chrono::steady_clock::time_point deadline_;
  std::atomic<bool> cancelled_{false};
  std::shared_ptr<const Share> share_;
  std::shared_ptr<WorkProgress> progress_;
  std::atomic<int64_t> worked_ns_{0};
};

}  // namespace telegrad
