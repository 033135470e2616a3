#include "server/serving/batch_size.h"

#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

std::vector<BatchSize> Known(std::vector<int64_t> ns) {
  std::vector<BatchSize> out;
  for (size_t i = 0; i < ns.size(); ++i) out.push_back({int64_t{1} << i, ns[i] > 0, ns[i]});
  return out;
}

// Of so many requests with as many rows each.
BatchChoice Choose(const std::vector<BatchSize>& sizes, size_t requests, int64_t rows = 1) {
  return ChooseBatch(sizes, std::vector<int64_t>(requests, rows));
}

TEST(BatchSizeTest, TakesTheSizeWithTheBestRate) {
  EXPECT_EQ(Choose(Known({40, 78, 170, 360, 720}), 16).requests, 2u);  // a CPU
  EXPECT_EQ(Choose(Known({40, 41, 42, 43, 44}), 16).requests, 16u);    // a GPU
  EXPECT_EQ(Choose(Known({40, 80, 160, 320, 640}), 16).requests, 16u);
  EXPECT_EQ(Choose(Known({40, 60, 90, 180, 400}), 16).requests, 8u);
}

TEST(BatchSizeTest, OfEqualRatesTheSmallestAnswersFirst) {
  constexpr int64_t kMs = 1'000'000;
  EXPECT_EQ(Choose(Known({33 * kMs, 66 * kMs, 132 * kMs, 290 * kMs}), 8).requests, 1u);
  EXPECT_EQ(Choose(Known({34 * kMs, 66 * kMs, 130 * kMs, 290 * kMs}), 8).requests, 2u);
  EXPECT_EQ(Choose(Known({kMs / 4, kMs / 2, kMs, 2 * kMs}), 8).requests, 4u)
      << "the largest of the short ones, or the first that is not";
}

TEST(BatchSizeTest, TheUsualSizeStaysWhileItIsNearlyAsGood) {
  constexpr int64_t kMs = 1'000'000;
  std::vector<BatchSize> sizes = Known({33 * kMs, 66 * kMs, 127 * kMs, 290 * kMs});
  EXPECT_EQ(Choose(sizes, 8).requests, 4u);
  EXPECT_EQ(Choose(sizes, 8).usual, 4);
  sizes[0].usual = true;  // 0.962 of the best rate
  EXPECT_EQ(Choose(sizes, 8).requests, 1u);
  EXPECT_EQ(Choose(sizes, 8).usual, 1);
  sizes[0].ns = 35 * kMs;
  EXPECT_EQ(Choose(sizes, 8).requests, 4u);
  sizes[2].aged = true;
  EXPECT_EQ(Choose(sizes, 8).requests, 4u);
  EXPECT_EQ(Choose(sizes, 8).usual, 0) << "it is tried before it becomes the usual one";
  sizes[2].aged = false;
  sizes[1].stale = true;
  EXPECT_EQ(Choose(sizes, 8).requests, 2u);
  EXPECT_EQ(Choose(sizes, 8).usual, 0) << "it is only tried";
}

TEST(BatchSizeTest, ALargerUsualSizeStaysOnlyWhileItIsAsGood) {
  constexpr int64_t kMs = 1'000'000;
  std::vector<BatchSize> sizes = Known({33 * kMs, 66 * kMs, 136 * kMs, 290 * kMs});
  EXPECT_EQ(Choose(sizes, 8).requests, 1u);
  sizes[2].usual = true;
  EXPECT_EQ(Choose(sizes, 8).requests, 1u) << "it has 0.971 of the rate of single rows";
  sizes[2].ns = 133 * kMs;
  EXPECT_EQ(Choose(sizes, 8).requests, 4u);
  sizes[1].ns = 63 * kMs;  // now single rows have 0.954 of the best rate and are not chosen
  EXPECT_EQ(Choose(sizes, 8).requests, 2u);
}

TEST(BatchSizeTest, FewRowsWaitForMoreWhileALongBatchRuns) {
  constexpr int64_t kMs = 1'000'000;
  EXPECT_TRUE(IsTooEarly(3, 4, 33 * kMs));
  EXPECT_FALSE(IsTooEarly(4, 4, 33 * kMs));
  EXPECT_FALSE(IsTooEarly(3, 0, 33 * kMs)) << "no size is known to be better";
  EXPECT_FALSE(IsTooEarly(3, 4, kMs));
}

TEST(BatchSizeTest, PaddingCountsAsNothing) {
  // 9 rows in a batch of 16 take 9 of 64; 8 of them take 8 of 32 and leave one.
  EXPECT_EQ(Choose(Known({4, 8, 16, 32, 64}), 9).requests, 8u);
  EXPECT_EQ(Choose(Known({4, 8, 16, 32, 64}), 16).requests, 16u);
  EXPECT_EQ(Choose(Known({40, 41, 42, 43, 44}), 9).requests, 9u);
  EXPECT_EQ(Choose(Known({4}), 1).requests, 1u);
}

TEST(BatchSizeTest, LearnsTheLargestThenTheSmallestThenThoseBetween) {
  std::vector<BatchSize> sizes = Known({0, 0, 0});
  sizes[0].made = true;  // when the model is loaded
  EXPECT_EQ(Choose(sizes, 4).requests, 4u);
  EXPECT_EQ(Choose(sizes, 4).wanted, 0);
  sizes[2] = {4, true, 400};
  EXPECT_EQ(Choose(sizes, 4).requests, 1u);
  sizes[0].ns = 90;
  EXPECT_EQ(Choose(sizes, 4).requests, 1u);
  EXPECT_EQ(Choose(sizes, 4).wanted, 2);
  sizes[1].made = true;
  EXPECT_EQ(Choose(sizes, 4).requests, 2u);
  EXPECT_EQ(Choose(sizes, 4).wanted, 0);
  sizes[0].made = false;
  sizes[0].ns = 0;
  EXPECT_EQ(Choose(sizes, 4).requests, 4u);
  EXPECT_EQ(Choose(sizes, 4).wanted, 1);
}

TEST(BatchSizeTest, SizesBetweenAreNotCompiledWhereSingleRowsAreSlow) {
  EXPECT_EQ(Choose(Known({40, 0, 0, 80}), 8).wanted, 0);
  EXPECT_EQ(Choose(Known({40, 0, 0, 300}), 8).wanted, 4);
}

// A size without room for a request can never be learned from it.
TEST(BatchSizeTest, SizesBelowTheFirstRequestDoNotCount) {
  std::vector<BatchSize> sizes = Known({0, 0, 0, 400, 0, 450});
  sizes[0].made = true;
  EXPECT_EQ(Choose(sizes, 4, 8).requests, 4u);
  EXPECT_EQ(Choose(sizes, 1, 8).requests, 1u);
  // Three rows each: four of them fit into 16, one into 4.
  sizes = Known({40, 45, 50, 90, 120});
  EXPECT_EQ(Choose(sizes, 5, 3).requests, 5u);  // there is no more room, nor are more needed
  EXPECT_EQ(ChooseBatch(Known({40, 45, 50, 200, 400}), std::vector<int64_t>{3, 1, 3}).requests, 2u);
  EXPECT_EQ(ChooseBatch(Known({40, 45, 50, 52, 400}), std::vector<int64_t>{3, 1, 3}).requests, 3u);
}

TEST(BatchSizeTest, OldTimesAreTriedAgain) {
  std::vector<BatchSize> sizes = Known({40, 85, 160});
  EXPECT_EQ(Choose(sizes, 4).requests, 4u);
  sizes[1].stale = true;
  EXPECT_EQ(Choose(sizes, 4).requests, 2u);
  sizes[1].ns = 400;  // even noise does not explain that
  EXPECT_EQ(Choose(sizes, 4).requests, 4u);
}

TEST(LearnedTimeTest, ShorterTimesCountMore) {
  LearnedTime time({.skipped = 2});
  time.Add(1000, 1);
  time.Add(900, 2);
  EXPECT_EQ(time.ns(), 0);
  EXPECT_EQ(time.learned_ns(), 2);
  time.Add(800, 3);
  EXPECT_EQ(time.ns(), 800);
  time.Add(1600, 4);
  EXPECT_EQ(time.ns(), 900);
  time.Add(500, 5);
  EXPECT_EQ(time.ns(), 800);
}

TEST(LearnedTimeTest, OfTheFirstTheShortestCounts) {
  LearnedTime time({.skipped = 1, .first = 3});
  time.Add(100, 1);
  time.Add(1600, 2);
  time.Add(800, 3);
  EXPECT_EQ(time.ns(), 0);
  time.Add(900, 4);
  EXPECT_EQ(time.ns(), 800);
}

TEST(LearnedTimeTest, ASlowSecondOfTenChangesLittle) {
  constexpr int64_t kMs = 1'000'000, kSecond = 1000 * kMs;
  LearnedTime time({.span_ns = 10 * kSecond});
  for (int i = 0; i < 100; ++i) time.Add((i % 2 == 0 ? 38 : 42) * kMs, 0);
  EXPECT_NEAR(static_cast<double>(time.ns()), 40e6, 0.1e6);
  for (int i = 0; i < 20; ++i) time.Add(50 * kMs, kSecond);
  EXPECT_NEAR(static_cast<double>(time.ns()), 41.5e6, 0.5e6);
  for (int i = 0; i < 600; ++i) time.Add(50 * kMs, kSecond);
  EXPECT_NEAR(static_cast<double>(time.ns()), 49.6e6, 0.3e6);
  EXPECT_FALSE(time.IsAged(11 * kSecond));
  EXPECT_TRUE(time.IsAged(12 * kSecond));
  time.Add(60 * kMs, 12 * kSecond);  // nothing was known of late
  EXPECT_NEAR(static_cast<double>(time.ns()), 55e6, 0.3e6);
}

// How often it is learned in a day, if only when it is old.
TEST(LearnedTimeTest, IsLearnedAgainSoonAndThenRarely) {
  constexpr int64_t kSecond = 1'000'000'000, kDay = 24 * 3600 * kSecond;
  for (const auto& [ns, most] :
       {std::pair{kSecond / 1000, 300 * kSecond}, {kSecond, 2000 * kSecond}}) {
    LearnedTime time({});
    time.Add(ns, 0);
    EXPECT_TRUE(time.IsOld(5 * kSecond));
    EXPECT_FALSE(time.IsOld(3 * kSecond));
    int64_t count = 0, longest = 0;
    for (int64_t now = 0; now < kDay; now += kSecond) {
      if (!time.IsOld(now)) continue;
      longest = std::max(longest, now - time.learned_ns());
      time.Add(ns, now);
      ++count;
    }
    EXPECT_NEAR(static_cast<double>(longest / kSecond), static_cast<double>(most / kSecond), 2);
    EXPECT_LE(count, kDay / most + 12);
  }
}

}  // namespace
}  // namespace telegrad
