// The interpreter of tensor graphs: products, movement, gathers, reductions, and the order of
// reads and stores.
#include "engine/reference/tensor_eval.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/base/strings.h"
#include "engine/reference/tensor_eval_test.h"

namespace telegrad::reference {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TEST(TensorEval, MatmulAsExpandMultiplyReduce) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937 random(seed);
  std::vector<float> a(6), b(12), expected;
  for (float& x : a) x = static_cast<float>(static_cast<int>(random() % 19) - 9);
  for (float& x : b) x = static_cast<float>(static_cast<int>(random() % 19) - 9);
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      float sum = 0;
      for (int k = 0; k < 3; ++k) sum += a[3 * i + k] * b[4 * k + j];
      expected.push_back(sum);
    }
  }
  std::vector<Bytes> slots{ToBytes(a), ToBytes(b), Bytes(8 * 4)};
  const absl::Status status = Eval(R"(
    %0 = param f32 [2, 3] slot=0
    %1 = reshape f32 [2, 1, 3] %0
    %2 = expand f32 [2, 4, 3] %1
    %3 = param f32 [3, 4] slot=1
    %4 = permute f32 [4, 3] %3 axes=[1, 0]
    %5 = reshape f32 [1, 4, 3] %4
    %6 = expand f32 [2, 4, 3] %5
    %7 = mul f32 [2, 4, 3] %2 %6
    %8 = reduce f32 [2, 4, 1] %7 kind=add axes=[2]
    %9 = reshape f32 [2, 4] %8
    %10 = param f32 [2, 4] slot=2
    %11 = store %10 %9
    %12 = sink %11
  )",
                                   slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<float>(slots[2]), ElementsAreArray(expected));
}

// Each movement against its definition in ops.def, on coordinates.
TEST(TensorEval, Movements) {
  std::vector<int32_t> x(24);
  for (int i = 0; i < 24; ++i) x[i] = i + 1;
  const auto at = [&](int i, int j, int k) { return x[12 * i + 4 * j + k]; };  // [2, 3, 4]
  const auto move = [&](std::string_view shape, std::string_view line) {
    std::vector<Bytes> slots{ToBytes(x), Bytes(4096)};
    const absl::Status status =
        Eval(StrCat("%0 = param i32 [2, 3, 4] slot=0\n%1 = ", line, "\n%2 = param i32 ", shape,
                    " slot=1\n%3 = store %2 %1\n%4 = sink %3"),
             slots);
    EXPECT_TRUE(status.ok()) << status;
    return FromBytes<int32_t>(slots[1]);
  };
  const auto permuted = move("[4, 2, 3]", "permute i32 [4, 2, 3] %0 axes=[2, 0, 1]");
  const auto flipped = move("[2, 3, 4]", "flip i32 [2, 3, 4] %0 axes=[0, 2]");
  const auto shrunk = move("[1, 2, 4]", "shrink i32 [1, 2, 4] %0 pairs=[1, 1, 0, 2, 0, 4]");
  const auto padded = move("[2, 6, 5]", "pad i32 [2, 6, 5] %0 pairs=[0, 2, 1, 6, 1, 5]");
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) {
        EXPECT_EQ(permuted[6 * k + 3 * i + j], at(i, j, k));
        EXPECT_EQ(flipped[12 * i + 4 * j + k], at(1 - i, j, 3 - k));
        if (i == 1 && j < 2) {
          EXPECT_EQ(shrunk[4 * j + k], at(i, j, k));
        }
      }
    }
    for (int j = 0; j < 6; ++j) {
      for (int k = 0; k < 5; ++k) {
        const bool inside = j >= 1 && j < 4 && k >= 1;
        EXPECT_EQ(padded[30 * i + 5 * j + k], inside ? at(i, j - 1, k - 1) : 0);
      }
    }
  }
}

TEST(TensorEval, GatherOutOfRangeGivesZero) {
  std::vector<Bytes> slots{ToBytes<int32_t>({1, 2, 3, 4, 5, 6}),
                           ToBytes<int64_t>({2, -1, 0, 3, INT64_MIN}), Bytes(10 * 4, 0xff)};
  const absl::Status status = Eval(R"(
    %0 = param i32 [3, 2] slot=0
    %1 = param i64 [5] slot=1
    %2 = gather i32 [5, 2] %0 %1
    %3 = param i32 [5, 2] slot=2
    %4 = store %3 %2
    %5 = sink %4
  )",
                                   slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int32_t>(slots[2]), ElementsAre(5, 6, 0, 0, 1, 2, 0, 0, 0, 0));
}

TEST(TensorEval, ReductionsOfNothingGiveTheIdentity) {
  std::vector<Bytes> slots{Bytes(), Bytes(8), Bytes(8)};
  const absl::Status status = Eval(R"(
    %0 = param i32 [2, 0] slot=0
    %1 = reduce i32 [2, 1] %0 kind=max axes=[1]
    %2 = reduce i32 [2, 1] %0 kind=mul axes=[1]
    %3 = param i32 [2, 1] slot=1
    %4 = param i32 [2, 1] slot=2
    %5 = store %3 %1
    %6 = store %4 %2
    %7 = sink %5 %6
  )",
                                   slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int32_t>(slots[1]), ElementsAre(INT32_MIN, INT32_MIN));
  EXPECT_THAT(FromBytes<int32_t>(slots[2]), ElementsAre(1, 1));
}

// x[1:3] = x[0:2]: all reads are of the value before the run.
TEST(TensorEval, AParamReadsTheValueBeforeTheRun) {
  std::vector<Bytes> slots{ToBytes<int32_t>({1, 2, 3, 4})};
  const absl::Status status = Eval(R"(
    %0 = param i32 [4] slot=0
    %1 = shrink i32 [2] %0 pairs=[1, 2]
    %2 = shrink i32 [2] %0 pairs=[0, 2]
    %3 = store %1 %2
    %4 = sink %3
  )",
                                   slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int32_t>(slots[0]), ElementsAre(1, 1, 2, 4));
}

// Two ordered stores, the second through a flipped and transposed view; and a reader of the version
// between them that comes after both in post-order.
TEST(TensorEval, StoresMakeVersions) {
  std::vector<Bytes> slots{ToBytes<int32_t>({1, 2, 3, 4, 5, 6}), Bytes(24)};
  const absl::Status status = Eval(R"(
    %0 = param i32 [2, 3] slot=0
    %1 = const i32 10
    %2 = mul i32 [2, 3] %0 %1
    %3 = store %0 %2
    %4 = after i32 [2, 3] %0 %3
    %5 = permute i32 [3, 2] %4 axes=[1, 0]
    %6 = flip i32 [3, 2] %5 axes=[0]
    %7 = shrink i32 [1, 2] %6 pairs=[0, 1, 0, 2]
    %8 = const i32 7
    %9 = store %7 %8
    %10 = after i32 [2, 3] %0 %3 %3
    %11 = add i32 [2, 3] %10 %0
    %12 = param i32 [2, 3] slot=1
    %13 = store %12 %11
    %14 = sink %9 %13
  )",
                                   slots);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(FromBytes<int32_t>(slots[0]), ElementsAre(10, 20, 7, 40, 50, 7));
  EXPECT_THAT(FromBytes<int32_t>(slots[1]), ElementsAre(11, 22, 33, 44, 55, 66));
}

TEST(TensorEval, ErrorsLeaveTheSlotsAlone) {
  constexpr std::string_view kText = R"(
    %0 = param i32 [2] slot=0
    %1 = const i32 1
    %2 = store %0 %1
    %3 = param i32 [2] slot=1
    %4 = neg i32 [2] %3
    %5 = param i32 [2] slot=2
    %6 = store %5 %4
    %7 = sink %2 %6
  )";
  std::vector<Bytes> two{ToBytes<int32_t>({5, 6}), Bytes(8)};
  EXPECT_EQ(Eval(kText, two).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(FromBytes<int32_t>(two[0]), ElementsAre(5, 6));
  std::vector<Bytes> small{ToBytes<int32_t>({5, 6}), Bytes(7), Bytes(8)};
  EXPECT_EQ(Eval(kText, small).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(FromBytes<int32_t>(small[0]), ElementsAre(5, 6));
}

TEST(TensorEval, RefusesWhatIsTooLarge) {
  std::vector<Bytes> slots{Bytes(4), Bytes(4)};
  EXPECT_EQ(Eval(R"(
    %0 = param f32 [1] slot=0
    %1 = expand f32 [1000000000000] %0
    %2 = reduce f32 [1] %1 kind=add axes=[0]
    %3 = param f32 [1] slot=1
    %4 = store %3 %2
    %5 = sink %4
  )",
                 slots)
                .code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace telegrad::reference
