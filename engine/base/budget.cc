#include "engine/base/budget.h"

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kStepsPerClockRead = 4096;

absl::Status Spend(int64_t n, int64_t limit, const char* what, int64_t* spent) {
  *spent += n;
  if (*spent <= limit) return absl::OkStatus();
  return ResourceExhausted("the budget of ", limit, " ", what, " is spent");
}

}  // namespace

Budget::Budget(const Limits& limits)
    : limits_(limits), deadline_(std::chrono::steady_clock::now() + limits.time) {}

absl::Status Budget::SpendNodes(int64_t n) { return Spend(n, limits_.nodes, "nodes", &nodes_); }

absl::Status Budget::SpendRewrites(int64_t n) {
  TG_RETURN_IF_ERROR(Spend(n, limits_.rewrites, "rewrites", &rewrites_));
  if (rewrites_ % kStepsPerClockRead < n) return CheckTime();
  return absl::OkStatus();
}

absl::Status Budget::SpendKernels(int64_t n) {
  TG_RETURN_IF_ERROR(Spend(n, limits_.kernels, "kernels", &kernels_));
  return CheckTime();
}

absl::Status Budget::TakeBytes(int64_t n) {
  if (n > limits_.bytes - bytes_) {
    return ResourceExhausted("the budget of ", limits_.bytes, " bytes is spent: ", n,
                             " more than the ", bytes_, " in use");
  }
  bytes_ += n;
  return absl::OkStatus();
}

absl::Status Budget::CheckTime() {
  if (cancelled_.load(std::memory_order_relaxed))
    return absl::CancelledError("the job was cancelled");
  if (std::chrono::steady_clock::now() > deadline_) {
    return absl::DeadlineExceededError(
        absl::StrCat("the job's time budget of ", limits_.time.count(), " ms is spent"));
  }
  return absl::OkStatus();
}

}  // namespace telegrad
