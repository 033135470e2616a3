// Random takes and gives against a plain map of bytes.
#include "devices/hcq/range_heap.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad::hcq {
namespace {

TEST(RangeHeap, TakesTheBestFitAndMergesNeighbours) {
  RangeHeap heap(100, 50);
  EXPECT_EQ(heap.Take(51, 1), std::nullopt);
  EXPECT_EQ(heap.Take(20, 1), 100u);
  EXPECT_EQ(heap.Take(20, 1), 120u);
  EXPECT_EQ(heap.Take(11, 1), std::nullopt);
  heap.Give(100, 20);
  EXPECT_EQ(heap.Take(10, 1), 140u);  // of 20 and of 10
  heap.Give(140, 10);
  heap.Give(120, 20);
  EXPECT_EQ(heap.free(), 50u);
  EXPECT_EQ(heap.Take(50, 1), 100u);
}

TEST(RangeHeap, Aligns) {
  RangeHeap heap(10, 100);
  EXPECT_EQ(heap.Take(4, 64), 64u);
  EXPECT_EQ(heap.Take(46, 64), std::nullopt);
  EXPECT_EQ(heap.Take(54, 2), 10u);  // what lay before the aligned one
}

TEST(RangeHeap, GivesNothingTwice) {
  constexpr uint64_t kSeed = 11, kSize = 1 << 12;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  RangeHeap heap(0, kSize);
  std::vector<bool> taken(kSize);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  uint64_t used = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 2 == 0 || live.empty()) {
      const uint64_t bytes = 1 + random() % 200, alignment = uint64_t{1} << random() % 7;
      const auto at = heap.Take(bytes, alignment);
      if (!at) continue;
      ASSERT_EQ(*at % alignment, 0u);
      ASSERT_LE(*at + bytes, kSize);
      for (uint64_t b = *at; b < *at + bytes; ++b) {
        ASSERT_FALSE(taken[b]);
        taken[b] = true;
      }
      live.emplace_back(*at, bytes);
      used += bytes;
    } else {
      std::swap(live[random() % live.size()], live.back());
      const auto [at, bytes] = live.back();
      live.pop_back();
      heap.Give(at, bytes);
      for (uint64_t b = at; b < at + bytes; ++b) taken[b] = false;
      used -= bytes;
    }
    ASSERT_EQ(heap.free(), kSize - used);
  }
  for (const auto& [at, bytes] : live) heap.Give(at, bytes);
  EXPECT_EQ(heap.Take(kSize, 1), 0u);
}

}  // namespace
}  // namespace telegrad::hcq
