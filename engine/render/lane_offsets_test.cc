// Addresses divided into a scalar, a part for each lane and a constant, and the cases in which
// they must not be.
#include "engine/render/lane_offsets.h"

#include "gtest/gtest.h"

namespace telegrad {
namespace {

using Lanes = std::vector<int64_t>;

class LaneOffsetsTest : public testing::Test {
 protected:
  UOp Do(Op op, UOp x, UOp y) { return g_.Make(op, {x, y}); }
  UOp Do(Op op, UOp x, int64_t y) { return g_.Make(op, {x, g_.Const(x.dtype(), y)}); }
  UOp Iota(int64_t lanes, DType dtype = DType::kInt64) {
    return g_.Make(Op::kIota, dtype, std::initializer_list<UOp>{}, {lanes});
  }
  UOp Range(int64_t id, int64_t size, DType dtype = DType::kInt64) {
    return g_.Range(id, AxisType::kLoop, g_.Const(dtype, size));
  }
  Graph g_;
};

TEST_F(LaneOffsetsTest, ContiguousLanesAreAScalarAndTheirNumbers) {
  const UOp i = Range(0, 100);
  const auto split = SplitLanes(Do(Op::kAdd, Do(Op::kMul, i, 8), Iota(4)));
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->lanes, (Lanes{0, 1, 2, 3}));
  EXPECT_EQ(split->Stride(), 1);
  EXPECT_EQ(split->Divisors(), (Lanes{8, 1, 2, 1}));
  EXPECT_EQ(split->constant, 0);
}

// The rows and columns of a matrix fragment, as tests/programs/mma_gemm.uop computes them.
TEST_F(LaneOffsetsTest, AFragmentIsComputedLaneByLane) {
  const UOp row = Range(0, 16), column = Range(1, 4), iota = Iota(8);
  const UOp rows =
      Do(Op::kAdd, row, Do(Op::kMul, Do(Op::kFloorMod, Do(Op::kFloorDiv, iota, 2), 2), 8));
  const UOp columns =
      Do(Op::kAdd, Do(Op::kAdd, Do(Op::kMul, column, 2), Do(Op::kFloorMod, iota, 2)),
         Do(Op::kMul, Do(Op::kFloorDiv, iota, 4), 8));
  const auto split = SplitLanes(Do(Op::kAdd, Do(Op::kMul, rows, 16), columns));
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->lanes, (Lanes{0, 1, 128, 129, 8, 9, 136, 137}));
  EXPECT_EQ(split->Stride(), 0);
  EXPECT_EQ(split->Divisors(), (Lanes{2, 1, 2, 1, 2, 1, 2, 1}));
  ASSERT_EQ(split->terms.size(), 2u);
  EXPECT_EQ(split->terms[0].scalar, row);
  EXPECT_EQ(split->terms[0].factor, 16);
}

TEST_F(LaneOffsetsTest, TheFirstLaneGoesToTheConstant) {
  const auto split =
      SplitLanes(Do(Op::kSub, Range(0, 4), Do(Op::kMul, Do(Op::kAdd, Iota(3), 5), 2)));
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->constant, -10);
  EXPECT_EQ(split->lanes, (Lanes{0, -2, -4}));
  EXPECT_EQ(split->Stride(), -2);
}

TEST_F(LaneOffsetsTest, WhatDependsOnMoreThanTheLaneIsNotSplit) {
  const UOp i = Range(0, 4), iota = Iota(4);
  EXPECT_FALSE(SplitLanes(Do(Op::kMul, iota, i)).has_value());
  EXPECT_FALSE(SplitLanes(Do(Op::kFloorDiv, Do(Op::kAdd, i, iota), 2)).has_value());
  const UOp table = g_.Param(0, DType::kInt64, Shape{4});
  EXPECT_FALSE(SplitLanes(g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {table, iota})})).has_value());
}

// In 32 bits lanes may wrap at 2^31, in memory they do not.
TEST_F(LaneOffsetsTest, NarrowSumsMustNotWrap) {
  const UOp iota = Iota(4, DType::kInt32);
  EXPECT_TRUE(SplitLanes(Do(Op::kAdd, Range(0, 100, DType::kInt32), iota)).has_value());
  EXPECT_FALSE(SplitLanes(Do(Op::kAdd, Range(1, INT32_MAX, DType::kInt32), iota)).has_value());
  EXPECT_FALSE(
      SplitLanes(Do(Op::kMul, Do(Op::kAdd, Range(2, 1 << 20, DType::kInt32), iota), 1 << 12))
          .has_value());
}

TEST_F(LaneOffsetsTest, DivisorsOfScalars) {
  const UOp i = Range(0, 100);
  EXPECT_EQ(DivisorOf(i), 1);
  EXPECT_EQ(DivisorOf(g_.Index(24)), 8);
  EXPECT_EQ(DivisorOf(Do(Op::kMul, Do(Op::kMul, i, 6), 4)), 8);
  EXPECT_EQ(DivisorOf(Do(Op::kAdd, Do(Op::kMul, i, 16), 4)), 4);
  EXPECT_EQ(DivisorOf(Do(Op::kFloorMod, Do(Op::kMul, i, 16), 8)), 8);
  EXPECT_EQ(DivisorOf(Do(Op::kFloorMod, Do(Op::kMul, i, 16), 12)), 4);
  EXPECT_EQ(DivisorOf(Do(Op::kShl, i, 5)), 32);
  EXPECT_EQ(DivisorOf(Do(Op::kAnd, i, -16)), 16);
}

TEST_F(LaneOffsetsTest, ASumThatFitsIsOf32Bits) {
  const auto narrow = [&](UOp index) {
    const auto split = SplitLanes(index);
    return split ? split->NarrowSum() : std::nullopt;
  };
  constexpr DType kNarrow = DType::kInt32;
  const UOp i = Range(0, 100, kNarrow), j = Range(1, 10, kNarrow), lanes = Iota(4, kNarrow);
  const UOp index = Do(Op::kAdd, Do(Op::kSub, Do(Op::kMul, i, 16), Do(Op::kMul, j, 4)), lanes);
  EXPECT_EQ(narrow(index), (Interval{-36, 1584}));
  EXPECT_EQ(narrow(Do(Op::kAdd, Do(Op::kSub, lanes, j), 5)), (Interval{-9, 0}));
  EXPECT_EQ(narrow(Do(Op::kAdd, Do(Op::kMul, Range(2, 100), 4), Iota(4))), std::nullopt);  // i64
  EXPECT_EQ(narrow(lanes), (Interval{0, 0}));  // no terms
}

TEST_F(LaneOffsetsTest, ADifferenceThatMayWrapIsNotSplit) {
  constexpr DType kNarrow = DType::kInt32;
  const UOp far = Do(Op::kSub, Range(0, 4, kNarrow), Iota(4, kNarrow));
  EXPECT_TRUE(SplitLanes(far).has_value());
  const UOp edge = Do(Op::kAdd, Range(1, 2, kNarrow), INT32_MIN);
  EXPECT_FALSE(SplitLanes(Do(Op::kSub, edge, Iota(4, kNarrow))).has_value());
}

}  // namespace
}  // namespace telegrad
