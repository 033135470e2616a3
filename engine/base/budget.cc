#include "engine/base/budget.h"

#include <string>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kStepsPerClockRead = 4096;

namespace what {
#define BUDGET(name, default_value, what) constexpr std::string_view name = what;
#include "engine/base/budget.def"
#undef BUDGET
}  // namespace what

// The daemon's flag for the budget of these units; time has none in the table.
std::string Flag(std::string_view units) {
#define BUDGET(name, default_value, what) \
  if (units == what) return "--job-" #name;
#include "engine/base/budget.def"
#undef BUDGET
  return "--job-time";
}

}  // namespace

Budget::Budget(const Limits& limits)
    : limits_(limits), whole_(this), deadline_(std::chrono::steady_clock::now() + limits.time) {}

Budget::Budget(Budget* whole) : limits_(whole->limits_), whole_(whole->whole_) {}

absl::Status Budget::Spent(int64_t limit, std::string_view what) const {
  return ResourceExhausted("the budget of ", limit, " ", what, " is exhausted while ", doing_,
                           "; a daemon raises it with ", Flag(what));
}

absl::Status Budget::SpendNodes(int64_t n) { return Spend(n, limits_.nodes, what::nodes, &nodes_); }

absl::Status Budget::SpendRewrites(int64_t n) {
  TG_RETURN_IF_ERROR(Spend(n, limits_.rewrites, what::rewrites, &rewrites_));
  if (rewrites_ % kStepsPerClockRead < n) return CheckTime();
  return absl::OkStatus();
}

absl::Status Budget::SpendSteps(int64_t n) {
  TG_RETURN_IF_ERROR(Spend(n, limits_.steps, what::steps, &steps_));
  if (steps_ % kStepsPerClockRead < n) return CheckTime();
  return absl::OkStatus();
}

absl::Status Budget::SpendKernels(int64_t n) {
  TG_RETURN_IF_ERROR(Spend(n, limits_.kernels, what::kernels, &kernels_));
  return CheckTime();
}

absl::Status Budget::SpendCode(int64_t bytes) {
  const int64_t all = whole_->code_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  return all <= limits_.code ? CheckTime() : Spent(limits_.code, what::code);
}

absl::Status Budget::ExpressionError() const { return Spent(limits_.expression, what::expression); }

absl::Status Budget::CheckTime() {
  if (whole_->cancelled_.load(std::memory_order_relaxed)) {
    return absl::CancelledError("the job was cancelled");
  }
  if (std::chrono::steady_clock::now() > whole_->deadline_) {
    return absl::DeadlineExceededError(StrCat("the job's time budget of ", limits_.time.count(),
                                              " ms is exhausted while ", doing_,
                                              "; a daemon raises it with ", Flag("time")));
  }
  return absl::OkStatus();
}

absl::Status Budget::TakeBytes(int64_t n) {
  const int64_t all = whole_->bytes_.fetch_add(n, std::memory_order_relaxed) + n;
  if (n <= limits_.bytes && all <= limits_.bytes) return absl::OkStatus();
  ReturnBytes(n);
  return Spent(limits_.bytes, what::bytes);
}

}  // namespace telegrad
