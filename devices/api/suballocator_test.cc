// Offsets of allocations: aligned, inside the range, never overlapping, and free in one stretch
// once all have come back.
#include "devices/api/suballocator.h"

#include <map>
#include <random>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Suballocator, RandomTraffic) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const int64_t step : {64, 256}) {
    constexpr int64_t kCapacity = 64 * kMiB;
    Suballocator offsets(kCapacity, step);
    std::map<int64_t, int64_t> live;
    const auto drop = [&](size_t i) {
      const auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(i));
      offsets.Return(it->first, it->second);
      live.erase(it);
    };
    for (int i = 0; i < 5000; ++i) {
      if (!live.empty() && random() % 5 < 2) {
        drop(random() % live.size());
        continue;
      }
      const int64_t size = random() % (int64_t{1} << (random() % 24));
      const int64_t at = offsets.Take(size).offset;
      if (at < 0) {
        drop(random() % live.size());
        continue;
      }
      ASSERT_EQ(at % (size > kMiB ? Suballocator::kBlock : step), 0);
      const auto next = live.lower_bound(at);
      ASSERT_TRUE(next == live.end() || at + offsets.Charge(size) <= next->first);
      ASSERT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= at);
      live.emplace(at, size);
      ASSERT_LE(live.rbegin()->first + live.rbegin()->second, offsets.top());
    }
    while (!live.empty()) drop(0);
    EXPECT_EQ(offsets.free(), (std::map<int64_t, int64_t>{{0, offsets.top()}}));
    EXPECT_LE(offsets.top(), kCapacity);
    offsets.LowerTop();
    EXPECT_EQ(offsets.top(), 0);
    EXPECT_TRUE(offsets.free().empty());
    EXPECT_EQ(offsets.Take(kCapacity).offset, 0);
    EXPECT_EQ(offsets.Take(0).offset, -1);
  }
}

}  // namespace
}  // namespace telegrad
