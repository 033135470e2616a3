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

TEST(BatchSizeTest, TakesTheSizeWithTheBestRate) {
  EXPECT_EQ(ChooseBatch(Known({40, 78, 170, 360, 720}), 16).rows, 2);  // a CPU
  EXPECT_EQ(ChooseBatch(Known({40, 41, 42, 43, 44}), 16).rows, 16);    // a GPU
  EXPECT_EQ(ChooseBatch(Known({40, 80, 160, 320, 640}), 16).rows, 16);
  EXPECT_EQ(ChooseBatch(Known({40, 60, 90, 180, 400}), 16).rows, 8);
}

TEST(BatchSizeTest, PaddingCountsAsNothing) {
  // 9 rows in a batch of 16 take 9 of 64; 8 of them take 8 of 32 and leave one.
  EXPECT_EQ(ChooseBatch(Known({4, 8, 16, 32, 64}), 9).rows, 8);
  EXPECT_EQ(ChooseBatch(Known({4, 8, 16, 32, 64}), 16).rows, 16);
  EXPECT_EQ(ChooseBatch(Known({40, 41, 42, 43, 44}), 9).rows, 9);
  EXPECT_EQ(ChooseBatch(Known({4}), 1).rows, 1);
}

TEST(BatchSizeTest, LearnsTheLargestThenTheSmallestThenThoseBetween) {
  std::vector<BatchSize> sizes = Known({0, 0, 0});
  sizes[0].made = true;  // when the model is loaded
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 4);
  EXPECT_EQ(ChooseBatch(sizes, 4).wanted, 0);
  sizes[2] = {4, true, 400};
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 1);
  sizes[0].ns = 90;
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 1);
  EXPECT_EQ(ChooseBatch(sizes, 4).wanted, 2);
  sizes[1].made = true;
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 2);
  EXPECT_EQ(ChooseBatch(sizes, 4).wanted, 0);
  sizes[0].made = false;
  sizes[0].ns = 0;
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 4);
  EXPECT_EQ(ChooseBatch(sizes, 4).wanted, 1);
}

TEST(BatchSizeTest, SizesBetweenAreNotCompiledWhereSingleRowsAreSlow) {
  EXPECT_EQ(ChooseBatch(Known({40, 0, 0, 80}), 8).wanted, 0);
  EXPECT_EQ(ChooseBatch(Known({40, 0, 0, 300}), 8).wanted, 4);
}

TEST(BatchSizeTest, OldTimesAreTriedAgain) {
  std::vector<BatchSize> sizes = Known({40, 85, 160});
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 4);
  sizes[1].stale = true;
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 2);
  sizes[1].ns = 400;  // even noise does not explain that
  EXPECT_EQ(ChooseBatch(sizes, 4).rows, 4);
}

TEST(LearnedTimeTest, ShorterTimesCountMore) {
  LearnedTime time(2);
  time.Add(1000, 1);
  time.Add(900, 2);
  EXPECT_EQ(time.ns(), 0);
  EXPECT_EQ(time.learned_ns(), 2);
  time.Add(800, 3);
  EXPECT_EQ(time.ns(), 800);
  time.Add(1600, 4);
  EXPECT_EQ(time.ns(), 900);
  time.Add(500, 5);
  EXPECT_EQ(time.ns(), 700);
}

}  // namespace
}  // namespace telegrad
