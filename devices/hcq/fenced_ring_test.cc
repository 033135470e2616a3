// A ring against a list of who has which place.
#include "devices/hcq/fenced_ring.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad::hcq {
namespace {

TEST(FencedRing, IsFullUntilAFenceIsPassed) {
  FencedRing ring(8);
  EXPECT_EQ(ring.Take(5), 0u);
  EXPECT_TRUE(ring.has_unfenced());
  EXPECT_EQ(ring.Take(4), std::nullopt);
  ring.Fence(1);
  EXPECT_FALSE(ring.has_unfenced());
  EXPECT_EQ(ring.oldest(), 1u);
  ring.Pass(0);
  EXPECT_FALSE(ring.CanTake(4));
  ring.Pass(1);
  EXPECT_EQ(ring.oldest(), std::nullopt);
  EXPECT_EQ(ring.Take(8), 0u);  // together, so from the beginning
  EXPECT_EQ(ring.Take(9), std::nullopt);
}

TEST(FencedRing, WhatIsSkippedAtTheEndIsFreedWithWhatFollows) {
  FencedRing ring(8);
  EXPECT_EQ(ring.Take(3), 0u);
  ring.Fence(1);
  EXPECT_EQ(ring.Take(3), 3u);
  ring.Fence(2);
  EXPECT_EQ(ring.Take(3), std::nullopt);  // 6 and 7 are too few, 0 to 2 are in use
  ring.Pass(1);
  EXPECT_EQ(ring.Take(3), 0u);
  ring.Fence(3);
  ring.Pass(2);
  EXPECT_EQ(ring.Take(3), 3u);
  EXPECT_EQ(ring.used(), 8u);  // with the two that were skipped
}

TEST(FencedRing, NobodyGetsAPlaceThatIsNotPassed) {
  constexpr uint64_t kSeed = 5, kSize = 64;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  FencedRing ring(kSize);
  std::vector<uint64_t> owner(kSize);  // the fence that frees the place; 0: free
  uint64_t fence = 0, passed = 0;
  int taken = 0;
  for (int i = 0; i < 50'000; ++i) {
    const uint64_t count = 1 + random() % 20, alignment = uint64_t{1} << random() % 4;
    if (const auto at = ring.Take(count, alignment)) {
      ++taken;
      ASSERT_EQ(*at % alignment, 0u);
      ASSERT_LE(*at + count, kSize);
      for (uint64_t p = *at; p < *at + count; ++p) {
        ASSERT_LE(owner[p], passed) << "place " << p;
        owner[p] = fence + 1;
      }
      if (random() % 2 == 0) ring.Fence(++fence);
    } else {
      ASSERT_TRUE(ring.has_unfenced() || ring.oldest().has_value());
      if (ring.has_unfenced()) ring.Fence(++fence);
      passed = std::max(passed, ring.oldest().value_or(0) + random() % 2);
      passed = std::min(passed, fence);
      ring.Pass(passed);
    }
  }
  EXPECT_GT(taken, 20'000);
}

}  // namespace
}  // namespace telegrad::hcq
