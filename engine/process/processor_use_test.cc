// The processor time of processes, and time limits that count it and not the waiting for a
// processor.
#include "engine/process/processor_use.h"

#include <gtest/gtest.h>
#include <unistd.h>

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
