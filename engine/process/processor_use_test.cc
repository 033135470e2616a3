// The processor time of processes, and time limits that count it and not the waiting for a
// processor.
#include "engine/process/processor_use.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

ProcessorUse Use(int ran_ms, int waited_ms, bool runnable) {
  return {milliseconds(ran_ms), milliseconds(waited_ms), runnable};
}

nanoseconds Left(const ProcessorUse& now, int elapsed_ms) {
  return PatienceLeft(Use(50, 20, false), now, milliseconds(elapsed_ms), milliseconds(100));
}

TEST(PatienceLeft, CountsWhatTheProcessDoes) {
  EXPECT_EQ(Left(Use(50, 20, false), 60), milliseconds(40));  // asleep
  EXPECT_EQ(Left(Use(50, 20, false), 100), milliseconds(0));  // all the time
  EXPECT_EQ(Left(Use(110, 20, true), 60), milliseconds(40));  // computes
  EXPECT_EQ(Left(Use(150, 20, true), 100), milliseconds(0));
}

TEST(PatienceLeft, DoesNotCountWaitingForAProcessor) {
  EXPECT_EQ(Left(Use(60, 100, false), 100), milliseconds(80));  // 80 of them it waited
  EXPECT_EQ(Left(Use(50, 20, true), 500), milliseconds(100));   // a wait that has not ended
  EXPECT_EQ(Left(Use(149, 20, true), 500), nanoseconds(12'500'000));
  EXPECT_EQ(Left(Use(50, 20, true), 950), milliseconds(50));  // of ten times the patience
  EXPECT_EQ(Left(Use(50, 20, true), 1000), milliseconds(0));
}

// A process that has a processor late, with a clock that only waiting moves.
class WaitPatientlyTest : public ::testing::Test {
 protected:
  absl::Status Wait(int comes_at_ms) {
    return WaitPatiently(
        1, milliseconds(100),
        [&](nanoseconds time) {
          now_ += std::min<nanoseconds>(time, milliseconds(comes_at_ms) - now_);
          return now_ == milliseconds(comes_at_ms) ? absl::OkStatus()
                                                   : absl::DeadlineExceededError("");
        },
        {.use = [this](pid_t) { return use_(now_); }, .now = [this] { return now_; }});
  }

  nanoseconds now_{0};
  std::function<ProcessorUse(nanoseconds)> use_;
};

TEST_F(WaitPatientlyTest, OfOneThatSleepsThePatienceIsTheLimit) {
  use_ = [](nanoseconds) { return Use(0, 0, false); };
  EXPECT_TRUE(Wait(99).ok());
  now_ = nanoseconds(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Wait(101)));
  EXPECT_EQ(now_, milliseconds(100));
}

TEST_F(WaitPatientlyTest, OfOneThatGetsNoProcessorTenTimesIsTheLimit) {
  use_ = [](nanoseconds) { return Use(0, 0, true); };
  EXPECT_TRUE(Wait(999).ok());
  now_ = nanoseconds(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Wait(1001)));
  EXPECT_EQ(now_, milliseconds(1000));
}

TEST_F(WaitPatientlyTest, OfOneThatComputesItsTimeIsTheLimit) {
  use_ = [](nanoseconds now) { return ProcessorUse{.ran = now / 2, .runnable = true}; };
  EXPECT_TRUE(Wait(199).ok());
  now_ = nanoseconds(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Wait(300)));
  EXPECT_GE(now_, milliseconds(200));
}

TEST(ProcessorUse, OfThisProcess) {
  const ProcessorUse before = ProcessorUseOf(getpid());
  if (before.ran.count() == 0)
    GTEST_SKIP() << "this kernel has no /proc/PID/schedstat (CONFIG_SCHED_INFO)";
  EXPECT_TRUE(before.runnable);
  // Its own count of processor time of this thread, which is the first of the process.
  const auto ran = [] {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + nanoseconds(t.tv_nsec);
  };
  const nanoseconds begin = ran();
  while (ran() - begin < milliseconds(30)) {
  }
  EXPECT_GE(ProcessorUseOf(getpid()).ran - before.ran, milliseconds(15));
}

TEST(ProcessorUse, OfNoProcess) {
  const ProcessorUse use = ProcessorUseOf(-1);
  EXPECT_EQ(use.ran.count(), 0);
  EXPECT_FALSE(use.runnable);
}

}  // namespace
}  // namespace telegrad
