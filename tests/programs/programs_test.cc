// Programs for many threads, written by hand as for GPUs and for AMX, compute what a plain
// computation does, in whatever order the threads run.
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/programs/problems.h"

namespace telegrad::testing {
namespace {

class Programs : public ::testing::TestWithParam<Problem> {};

TEST_P(Programs, ComputeWhatPlainCodeComputes) {
  const std::string text = ReadData(StrCat(GetParam().name, ".uop"));
  EXPECT_EQ(RunProblem(GetParam(), text, {}), absl::OkStatus());
  EXPECT_EQ(RunProblem(GetParam(), text, {.sources_at_issue = true}), absl::OkStatus());
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    EXPECT_EQ(RunProblem(GetParam(), text, {.seed = seed, .sources_at_issue = seed % 2 == 0}),
              absl::OkStatus())
        << "seed " << seed;
  }
}

TEST_P(Programs, PrintAndParseBack) {
  const auto program = ParseProgram(ReadData(StrCat(GetParam().name, ".uop")));
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(Verify(*program), absl::OkStatus());
  const std::string printed = Print(*program);
  const auto again = ParseProgram(printed);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->order, program->order);
  EXPECT_EQ(Print(*again), printed);
}

TEST_P(Programs, StopWithinTheirSteps) {
  const absl::Status status =
      RunProblem(GetParam(), ReadData(StrCat(GetParam().name, ".uop")), {.max_steps = 50});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

INSTANTIATE_TEST_SUITE_P(All, Programs, ::testing::ValuesIn(AllProblems()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace telegrad::testing
