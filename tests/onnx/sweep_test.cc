// A sweep runs cases in processes of its own: a crash, an exit or a hang is the failure of one
// case and of no other.
#include "tests/onnx/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Sweep, ACrashAHangAndAnExitAreTheFailureOfOneCase) {
  const auto run = [](size_t i) -> std::string {
    if (i == 3) std::raise(SIGKILL);
    if (i == 70) _exit(7);
    if (i == 71) {
      while (true) pause();
    }
    return i % 10 == 5 ? "wrong\nvalue" : "";
  };
  const auto results = Sweep(150, {.jobs = 2, .timeout_s = 2}, [] { return ""; }, run);
  ASSERT_EQ(results.size(), 150u);
  for (size_t i = 0; i < results.size(); ++i) {
    const bool bad = i == 3 || i == 70 || i == 71 || i % 10 == 5;
    EXPECT_EQ(results[i].ok, !bad) << i << ": " << results[i].message;
  }
  EXPECT_THAT(results[3].message, StartsWith("crashed"));
  EXPECT_EQ(results[5].message, "wrong value");
  EXPECT_THAT(results[70].message, HasSubstr("exit code 7"));
  EXPECT_THAT(results[71].message, HasSubstr("timed out"));
}

TEST(Sweep, WhatCannotBeOpenedFailsEveryCase) {
  const auto results = Sweep(3, {}, [] { return "no device"; }, [](size_t) { return ""; });
  for (const CaseResult& result : results) EXPECT_EQ(result.message, "no device");
}

}  // namespace
}  // namespace telegrad::testing
