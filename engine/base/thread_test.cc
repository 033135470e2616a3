#include "engine/base/thread.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

TEST(ThreadTest, AThreadThatMayRunOnOneProcessorHasOne) {
  const int all = AvailableProcessors();
  EXPECT_GE(all, 1);
  std::thread([] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
    EXPECT_EQ(AvailableProcessors(), 1);
  }).join();
  EXPECT_EQ(AvailableProcessors(), all);
}

}  // namespace
}  // namespace telegrad
