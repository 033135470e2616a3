// The texts of progress lines and plots, and that an operation of less than two seconds shows
// nothing.
#include "client/terminal/progress.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

TEST(ProgressLine, RateAndTimeLeft) {
  EXPECT_EQ(ProgressLine("epoch 3/16", 12, 48, "steps", 4),
            "epoch 3/16: 12 of 48 steps, 25%, 3 steps/s, 0:12 left");
  EXPECT_EQ(ProgressLine("train", 1, 7201, "steps", 1),
            "train: 1 of 7201 steps, 0%, 1 steps/s, 2:00:00 left");
  EXPECT_EQ(ProgressLine("train", 7, 7, "steps", 3.5),
            "train: 7 of 7 steps, 100%, 2 steps/s, 0:00 left");
}

TEST(ProgressLine, WithoutABeginningOrAnEnd) {
  EXPECT_EQ(ProgressLine("compiling", 0, 0, "", 61.2), "compiling: 1:02");
  EXPECT_EQ(ProgressLine("train", 0, 9, "steps", 5), "train: 0 of 9 steps, 0%");
}

TEST(ProgressLine, ATransferCountsFromWhereItBegan) {
  constexpr int64_t kMiB = 1 << 20;
  const TransferAmount before{3 * kMiB, 3 * kMiB};
  EXPECT_EQ(TransferLine("sending", "running", before, {23 * kMiB, 83 * kMiB}, 4),
            "sending: 20 of 80 MiB, 25%, 5 MiB/s, 0:12 left");
  EXPECT_EQ(TransferLine("sending", "running", before, {83 * kMiB, 83 * kMiB}, 4), "running: 0:04");
  EXPECT_EQ(TransferLine("sending", "running", before, before, 4), "running: 0:04");
}

TEST(CompileLine, CountsTheKernelsThatAreCompiledTogether) {
  absl::StatusOr<CompileProgress> server = CompileProgress{};
  CompileLine line("compiling", [&] { return server; });
  EXPECT_EQ(line(2), "compiling: 0:02");
  server = CompileProgress{10, 40};
  EXPECT_EQ(line(5), "compiling: 10 of 40 kernels, 25%, 2 kernels/s, 0:15 left");
  server = CompileProgress{40, 40};
  EXPECT_EQ(line(20), "compiling: 0:20");
  // Of the next graph, whose kernels have a rate of their own.
  server = CompileProgress{0, 8};
  EXPECT_EQ(line(22), "compiling: 0 of 8 kernels, 0%");
  server = CompileProgress{4, 8};
  EXPECT_EQ(line(24), "compiling: 4 of 8 kernels, 50%, 2 kernels/s, 0:02 left");
  server = absl::UnavailableError("the link is cut");
  EXPECT_EQ(line(30), "compiling: 0:30");
}

TEST(Progress, EndsAtOnceAndSaysNothingWhenItWasShort) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress("short", 3, "steps", /*terminal=*/true);
    progress.Done(3);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(Plot, HighestAtTheTopLowestStillSeen) {
  const std::vector<double> values = {4, 3, 2, 1, 0};
  EXPECT_EQ(Plot(values, 80, 2), "        3 ┤█▄\n        1 ┤███▄▁\n");
}

TEST(Plot, MeansOfColumnsAndGaps) {
  const std::vector<double> values = {0, 2, NAN, NAN, 5, 5};
  EXPECT_EQ(Plot(values, 3, 1), "        3 ┤▁ █\n");
  EXPECT_EQ(Plot(std::vector<double>{}, 10, 3), "");
  EXPECT_EQ(Plot(std::vector<double>{NAN}, 10, 3), "");
  EXPECT_EQ(Plot(std::vector<double>{7, 7}, 10, 1), "      7.5 ┤▁▁\n");
}

}  // namespace
}  // namespace telegrad
