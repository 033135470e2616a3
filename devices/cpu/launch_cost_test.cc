#include "devices/cpu/launch_cost.h"

#include <gtest/gtest.h>

#include <bit>

namespace telegrad {
namespace {

// What a submission does of a launch decides whether its thread runs it, and who helps.
TEST(LaunchCost, FollowsWhatASubmissionDoes) {
  Command launch;
  launch.launch.grid.x = 64;
  launch.launch.bytes = ThreadRates().bytes * 200e-6;  // 200 microseconds
  PredictedTimes fixed;
  fixed.Add(launch);
  EXPECT_FALSE(fixed.quick({}));
  EXPECT_EQ(fixed.helpers(0, {}, 4), 3);

  launch.launch.share = 1;
  PredictedTimes times;
  times.Add(launch);
  const auto scalars = [](double share) {
    return std::vector<uint64_t>{0, std::bit_cast<uint64_t>(share)};
  };
  EXPECT_FALSE(times.quick(scalars(1)));
  EXPECT_EQ(times.helpers(0, scalars(1), 4), 3);
  EXPECT_EQ(times.helpers(0, scalars(0.15), 4), 2);
  EXPECT_EQ(times.helpers(0, scalars(0.05), 4), 0);
  EXPECT_FALSE(times.quick(scalars(0.1)));
  EXPECT_TRUE(times.quick(scalars(0.04)));
  // What is no part is all of it.
  for (const double wrong : {-1.0, 2.0, std::bit_cast<double>(~uint64_t{0})}) {
    EXPECT_FALSE(times.quick(scalars(wrong))) << wrong;
  }
  // All of it may be done whatever the share says: no thread that submits runs milliseconds.
  for (int i = 0; i < 100; ++i) times.Add(launch);
  EXPECT_FALSE(times.quick(scalars(0)));
}

TEST(LaunchCost, WorkgroupsThatThereAre) {
  Launch launch;
  launch.begin = 10;
  launch.grid.x = 20;
  EXPECT_EQ(launch.GroupsOf({}), 20);
  launch.groups = 0;
  for (const auto& [all, own] : {std::pair<uint64_t, int64_t>{100, 20},
                                 {30, 20},
                                 {15, 5},
                                 {11, 1},
                                 {10, 1},
                                 {3, 1},
                                 {0, 1},
                                 // No signed number is as great.
                                 {uint64_t{1} << 63, 20},
                                 {(uint64_t{1} << 63) + 5, 20},
                                 {~uint64_t{0}, 20}}) {
    EXPECT_EQ(launch.GroupsOf(std::span(&all, 1)), own) << all;
  }
  launch.grid.x = 0;
  const uint64_t all = 100;
  EXPECT_EQ(launch.GroupsOf(std::span(&all, 1)), 0);
}

}  // namespace
}  // namespace telegrad
