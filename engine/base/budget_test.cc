// Budgets: each limit is exact and named in its error, memory is returned, and tasks that share
// a budget count their own steps.
#include "engine/base/budget.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace telegrad {
namespace {

// Every row of the table is spent by its function, up to its limit and not beyond, and says so.
TEST(Budget, EveryLimitIsExactAndNamed) {
  struct Row {
    int64_t Budget::Limits::* limit;
    std::function<absl::Status(Budget&)> spend;
    std::string what, flag;
  };
  const Row rows[] = {
      {&Budget::Limits::nodes, [](Budget& b) { return b.SpendNodes(); }, "3 nodes", "--job-nodes"},
      {&Budget::Limits::rewrites, [](Budget& b) { return b.SpendRewrites(); }, "3 rewrites",
       "--job-rewrites"},
      {&Budget::Limits::steps, [](Budget& b) { return b.SpendSteps(); }, "3 analysis steps",
       "--job-steps"},
      {&Budget::Limits::kernels, [](Budget& b) { return b.SpendKernels(); }, "3 kernels",
       "--job-kernels"},
      {&Budget::Limits::code, [](Budget& b) { return b.SpendCode(1); }, "3 bytes of code",
       "--job-code"},
  };
  for (const Row& row : rows) {
    Budget::Limits limits;
    limits.*row.limit = 3;
    Budget budget(limits);
    const Budget::Doing doing(&budget, "testing");
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(row.spend(budget).ok()) << row.what;
    for (int i = 0; i < 2; ++i) {  // once exhausted, always exhausted
      EXPECT_EQ(row.spend(budget), absl::ResourceExhaustedError("the budget of " + row.what +
                                                                " is exhausted while testing; a "
                                                                "daemon raises it with " +
                                                                row.flag));
    }
  }
}

TEST(Budget, MemoryIsGivenBack) {
  Budget::Limits limits;
  limits.bytes = 100;
  Budget budget(limits);
  {
    Budget::Held first(&budget), second(&budget);
    EXPECT_TRUE(first.Grow(60).ok());
    EXPECT_TRUE(first.GrowTo(50).ok());
    EXPECT_TRUE(second.GrowTo(40).ok());
    EXPECT_EQ(budget.bytes_held(), 100);
    EXPECT_EQ(second.Grow(1).code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(budget.bytes_held(), 0);
  Budget::Held again(&budget);
  EXPECT_TRUE(again.Grow(100).ok());
}

TEST(Budget, ErrorsSayTheInnermostThingThatWasDone) {
  Budget::Limits limits;
  limits.nodes = 0;
  Budget budget(limits);
  const auto message = [&] { return std::string(budget.SpendNodes().message()); };
  const Budget::Doing outer(&budget, "compiling");
  {
    const Budget::Doing inner(&budget, "lowering");
    EXPECT_EQ(
        message(),
        "the budget of 0 nodes is exhausted while lowering; a daemon raises it with --job-nodes");
  }
  EXPECT_EQ(
      message(),
      "the budget of 0 nodes is exhausted while compiling; a daemon raises it with --job-nodes");
}

TEST(Budget, ATaskCountsForItselfAndSharesTheRest) {
  Budget::Limits limits;
  limits.nodes = 10;
  limits.bytes = 100;
  limits.code = 10;
  Budget whole(limits);
  Budget first(&whole), second(&whole);
  EXPECT_TRUE(first.SpendNodes(10).ok());
  EXPECT_TRUE(second.SpendNodes(10).ok());
  EXPECT_TRUE(first.SpendCode(6).ok());
  EXPECT_EQ(second.SpendCode(6).code(), absl::StatusCode::kResourceExhausted);
  Budget::Held held(&first), other(&second);
  EXPECT_TRUE(held.Grow(60).ok());
  EXPECT_EQ(other.Grow(60).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(second.CheckTime().ok());
  whole.Cancel();
  EXPECT_EQ(second.CheckTime().code(), absl::StatusCode::kCancelled);
}

TEST(Budget, TheDeadlineIsTheWholes) {
  Budget::Limits limits;
  limits.time = std::chrono::milliseconds(-1);
  Budget whole(limits);
  Budget task(&whole);
  EXPECT_EQ(task.CheckTime().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(task.SpendKernels().code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace telegrad
