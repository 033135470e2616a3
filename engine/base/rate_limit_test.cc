// Rate limits: a burst and then the rate, corrections by measured values, the error with the
// time to try again, and changes while a limit is in use.
#include "engine/base/rate_limit.h"

#include <string>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(RateLimit, GivesABurstAndThenTheRate) {
  RateLimit limit(kRateOfTime, "rate of t", 100, "burst of t", 500, "raise it");
  int64_t now = 1000 * kMs, taken = 0;
  const int64_t begin = now, end = begin + 10'000 * kMs;
  for (; now < end; now += kMs) {
    if (limit.Take(10 * kMs, now).ok()) taken += 10 * kMs;
  }
  // 100 ms in each of ten seconds, the burst, and no more than one piece beyond.
  EXPECT_GE(taken, 1500 * kMs);
  EXPECT_LE(taken, 1510 * kMs);
  // What is not used is saved up to the burst.
  now += 3600'000 * kMs;
  EXPECT_EQ(limit.overdrawn(now), -500);
}

TEST(RateLimit, SaysWhatIsUsedAndWhenToTryAgain) {
  RateLimit limit(kRateOfTime, "device_rate of tenant t", 200, "device_burst", 100, "raise it");
  const int64_t now = 1000 * kMs;
  EXPECT_TRUE(limit.Take(400 * kMs, now).ok()) << "longer than the burst, but something is left";
  const absl::Status refused = limit.Take(kMs, now);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.message(),
            "device_rate of tenant t is limited to 200 ms in each second, device_burst to 100 ms: "
            "300 ms more have been used; try again in 1501 ms, or raise it");
  ASSERT_EQ(RetryAfterMs(refused), 1501);
  EXPECT_FALSE(limit.Take(kMs, now + 1499 * kMs).ok());
  EXPECT_TRUE(limit.Take(kMs, now + 1501 * kMs).ok());
}

TEST(RateLimit, IsCorrectedByWhatWasMeasured) {
  RateLimit limit(kRateOfTime, "r", 1, "b", 100, "raise it");
  EXPECT_TRUE(limit.Take(1000 * kMs, kMs).ok());
  EXPECT_FALSE(limit.Take(1, kMs).ok());
  limit.Correct(1000 * kMs, 10 * kMs);
  EXPECT_EQ(limit.overdrawn(kMs), -90);
  EXPECT_TRUE(limit.Take(1, kMs).ok());
  limit.Correct(0, 1000 * kMs);
  EXPECT_FALSE(limit.Take(1, kMs).ok());
}

TEST(RateLimit, NothingIsAllowedIfSoSet) {
  RateLimit none(kRateOfTime, "r", 0, "b", 0, "raise it");
  const absl::Status refused = none.Take(1, kMs);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_EQ(RetryAfterMs(refused), std::nullopt);
}

TEST(RateLimit, ChangesWhileItIsInUse) {
  RateLimit limit(kRateOfTime, "r", 100, "b", 500, "raise it");
  int64_t now = 1000 * kMs;
  EXPECT_TRUE(limit.Take(800 * kMs, now).ok());
  EXPECT_FALSE(limit.Take(kMs, now).ok());
  // What was used stays used, of a larger burst and of a smaller one.
  limit.Limit(1000, 2000, "ask", now);
  EXPECT_EQ(limit.overdrawn(now), -1200);
  limit.Limit(10, 100, "ask", now);
  EXPECT_EQ(limit.overdrawn(now), 700);
  const absl::Status refused = limit.Take(kMs, now);
  EXPECT_EQ(refused.message(),
            "r is limited to 10 ms in each second, b to 100 ms: 700 ms more have been used; try "
            "again in 70001 ms, or ask");
  // The time so far was at the rate so far.
  now += 1000 * kMs;
  limit.Limit(100, 500, "ask", now);
  EXPECT_EQ(limit.used(now), 790 * kMs);
  for (int i = 0; i < 100; ++i) {
    limit.Limit(100, 5000, "ask", now);
    limit.Limit(100, 500, "ask", now);
  }
  EXPECT_EQ(limit.used(now), 790 * kMs) << "to and fro gives nothing";
}

TEST(RateLimit, WhatWasUsedGoesOn) {
  RateLimit before(kRateOfTime, "r", 100, "b", 500, "");
  RateLimit after(kRateOfTime, "r", 100, "b", 500, "");
  const int64_t now = 1000 * kMs;
  EXPECT_TRUE(before.Take(800 * kMs, now).ok());
  after.Use(before.used(now), now);
  EXPECT_EQ(after.overdrawn(now + 1000 * kMs), 200);
  EXPECT_EQ(RateLimit(kRateOfTime, "r", 100, "b", 500, "").used(now), 0);
}

}  // namespace
}  // namespace telegrad
