// What is computed in 32 bits and what is not, by the nodes of small kernels.
#include "engine/lowering/narrow_indices.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/ir/text.h"
#include "engine/lowering/bounds_proof.h"

namespace telegrad {
namespace {

class NarrowIndicesTest : public ::testing::Test {
 protected:
  UOp Range(int64_t id, int64_t size, AxisType type = AxisType::kLoop) {
    return g_.Range(id, type, g_.Index(size));
  }
  UOp Do(Op op, UOp x, UOp y) { return g_.Make(op, {x, y}); }
  UOp Do(Op op, UOp x, int64_t y) { return g_.Make(op, {x, g_.Index(y)}); }
  UOp At(int64_t slot, int64_t elements, UOp index, UOp gate = {}, DType dtype = DType::kFloat32) {
    const UOp buffer = g_.Param(slot, dtype, Shape{elements});
    return gate.valid() ? g_.Make(Op::kIndex, {buffer, index, gate})
                        : g_.Make(Op::kIndex, {buffer, index});
  }
  UOp Load(UOp address) { return g_.Make(Op::kLoad, {address}); }

  // The kernel that stores `value` there for all values of the ranges, narrow.
  void Store(UOp to, UOp value, std::vector<UOp> ranges) {
    ranges.insert(ranges.begin(), g_.Make(Op::kStore, {to, value}));
    const UOp root = g_.Make(Op::kSink, {g_.Make(Op::kEnd, DType::kVoid, ranges)});
    root_ = root;
    Budget budget;
    ASSERT_TRUE(ProveBounds(g_, PostOrder(root), &budget)->unproved.empty()) << Print(root);
    const auto narrow = NarrowIndices(&g_, root, &budget);
    ASSERT_TRUE(narrow.ok()) << narrow.status();
    root_ = *narrow;
    EXPECT_TRUE(ProveBounds(g_, PostOrder(root_), &budget)->unproved.empty()) << Print(root_);
  }

  std::vector<UOp> All(Op op) const {
    std::vector<UOp> out;
    for (const uint32_t id : PostOrder(root_)) {
      if (g_.op(id) == op) out.push_back(g_.at(id));
    }
    return out;
  }
  // The index of the INDEX into that argument.
  UOp IndexOf(int64_t slot) const {
    for (const UOp u : All(Op::kIndex)) {
      if (u.src(0).is(Op::kParam) && u.src(0).slot() == slot) return u.src(1);
    }
    return {};
  }
  // Whether a node of that op is of type i64.
  bool HasI64(Op op) const {
    return std::ranges::any_of(All(op), [](UOp u) { return u.dtype() == DType::kInt64; });
  }

  Graph g_;
  UOp root_;
};

TEST_F(NarrowIndicesTest, AffineIndicesAndTheirRangesHave32Bits) {
  const UOp i = Range(0, 100, AxisType::kGroup), j = Range(1, 64, AxisType::kLocal);
  const UOp lanes = g_.Make(Op::kIota, DType::kInt64, {}, {4});
  const UOp index = Do(Op::kAdd, Do(Op::kMul, Do(Op::kAdd, Do(Op::kMul, i, 64), j), 4), lanes);
  Store(At(0, 25600, index), Load(At(1, 25600, index)), {i, j});
  EXPECT_EQ(IndexOf(0).dtype(), DType::kInt32);
  EXPECT_EQ(IndexOf(0), IndexOf(1));
  EXPECT_EQ(IndexOf(0).bounds(), (Interval{0, 25599}));
  for (const Op op : {Op::kRange, Op::kAdd, Op::kMul, Op::kIota, Op::kCast}) {
    EXPECT_FALSE(HasI64(op)) << Print(root_);
  }
  EXPECT_EQ(All(Op::kEnd).front().src(1).dtype(), DType::kInt32);
}

TEST_F(NarrowIndicesTest, NegativeSteps) {
  const UOp i = Range(0, 100);
  Store(At(0, 100, i), Load(At(1, 100, Do(Op::kAdd, Do(Op::kMul, i, -1), 99))), {i});
  EXPECT_EQ(IndexOf(1).dtype(), DType::kInt32);
  EXPECT_EQ(IndexOf(1).bounds(), (Interval{0, 99}));
}

// The buffer is never allocated.
TEST_F(NarrowIndicesTest, ABufferOfMoreThan2To31ElementsIsIndexedIn64Bits) {
  const int64_t half = int64_t{1} << 16;
  const UOp i = Range(0, half), j = Range(1, half);
  const UOp wide = Do(Op::kAdd, Do(Op::kMul, i, half), j);
  Store(At(0, half * half, wide), Load(At(1, half, j)), {i, j});
  EXPECT_EQ(IndexOf(0).dtype(), DType::kInt64);
  EXPECT_EQ(IndexOf(0).bounds(), (Interval{0, half * half - 1}));
  EXPECT_EQ(IndexOf(1).dtype(), DType::kInt32);
  EXPECT_FALSE(HasI64(Op::kRange));
}

TEST_F(NarrowIndicesTest, TheLastIndexDecides) {
  for (const int64_t beyond : {0, 1}) {
    const UOp i = Range(beyond, 1024);
    const int64_t first = (int64_t{1} << 31) - 1024 + beyond;
    Store(At(0, int64_t{1} << 32, Do(Op::kAdd, i, first)), g_.ConstFloat(DType::kFloat32, 1), {i});
    EXPECT_EQ(IndexOf(0).dtype(), beyond != 0 ? DType::kInt64 : DType::kInt32);
  }
}

// i * 2^27 does not fit, its quotient does: the product stays i64.
TEST_F(NarrowIndicesTest, AProductThatOverflowsThoughTheResultFits) {
  const UOp i = Range(0, 64);
  const UOp index = Do(Op::kFloorDiv, Do(Op::kMul, i, int64_t{1} << 27), int64_t{1} << 26);
  Store(At(0, 127, index), g_.ConstFloat(DType::kFloat32, 1), {i});
  ASSERT_TRUE(IndexOf(0).is(Op::kCast)) << Print(root_);
  EXPECT_EQ(IndexOf(0).dtype(), DType::kInt32);
  const UOp quotient = IndexOf(0).src(0);
  EXPECT_EQ(quotient.dtype(), DType::kInt64);
  EXPECT_EQ(quotient.src(0).dtype(), DType::kInt64);
}

TEST_F(NarrowIndicesTest, GatesAreComparedIn32Bits) {
  const UOp i = Range(0, 40), j = Range(1, 3);
  const UOp at = Do(Op::kAdd, Do(Op::kAdd, i, j), -1);
  const UOp gate = Do(Op::kAnd, Do(Op::kCmpLt, g_.Index(-1), at), Do(Op::kCmpLt, at, g_.Index(40)));
  Store(At(0, 120, Do(Op::kAdd, Do(Op::kMul, i, 3), j)), Load(At(1, 40, at, gate)), {i, j});
  EXPECT_EQ(IndexOf(1).dtype(), DType::kInt32);
  EXPECT_EQ(IndexOf(1).bounds(), (Interval{-1, 40}));
  EXPECT_EQ(All(Op::kCmpLt).size(), 2u);
  for (const UOp u : All(Op::kCmpLt)) EXPECT_EQ(u.src(0).dtype(), DType::kInt32);
}

TEST_F(NarrowIndicesTest, LoadedIndices) {
  for (const DType dtype : {DType::kInt16, DType::kInt32, DType::kInt64}) {
    const UOp i = Range(static_cast<int64_t>(dtype), 40);
    UOp row = Load(At(1, 40, i, {}, dtype));
    if (dtype != DType::kInt64) row = g_.Make(Op::kCast, DType::kInt64, {row});
    const UOp gate =
        Do(Op::kAnd, Do(Op::kCmpLt, g_.Index(-1), row), Do(Op::kCmpLt, row, g_.Index(1000)));
    const UOp index = Do(Op::kAdd, Do(Op::kMul, row, 64), 3);
    Store(At(0, 40, i), Load(At(2, 64000, index, gate)), {i});
    // 2^15 * 64 fits, what is computed from any i32 does not.
    EXPECT_EQ(IndexOf(2).dtype(), dtype == DType::kInt16 ? DType::kInt32 : DType::kInt64)
        << Print(root_);
    EXPECT_EQ(IndexOf(0).dtype(), DType::kInt32);
  }
}

// What is inside only by a comparison with a loaded i64 is not proved by its narrow index.
TEST_F(NarrowIndicesTest, AnIndexThatAWideGateKeepsInsideStaysWide) {
  const UOp i = Range(0, 40), j = Range(1, 100);
  const UOp length = Load(At(1, 40, i, {}, DType::kInt64));
  const UOp known =
      Do(Op::kAnd, Do(Op::kCmpLt, g_.Index(-1), length), Do(Op::kCmpLt, length, g_.Index(50)));
  const UOp gate = Do(Op::kAnd, Do(Op::kCmpLt, j, length), known);
  Store(At(0, 4000, Do(Op::kAdd, Do(Op::kMul, i, 100), j)), Load(At(2, 49, j, gate)), {i, j});
  EXPECT_EQ(IndexOf(2).dtype(), DType::kInt64) << Print(root_);
  EXPECT_EQ(IndexOf(0).dtype(), DType::kInt32);
}

TEST_F(NarrowIndicesTest, ConditionsAndConversionsOfValues) {
  const UOp i = Range(0, 40), j = Range(1, 40);
  const UOp number = g_.Make(Op::kCast, DType::kFloat32, {Do(Op::kAdd, i, j)});
  const UOp value =
      g_.Make(Op::kWhere, {Do(Op::kCmpLt, i, j), number, g_.ConstFloat(DType::kFloat32, 0)});
  Store(At(0, 1600, Do(Op::kAdd, Do(Op::kMul, i, 40), j)), value, {i, j});
  EXPECT_EQ(All(Op::kCmpLt).front().src(0).dtype(), DType::kInt32);
  ASSERT_EQ(All(Op::kCast).size(), 1u) << Print(root_);
  EXPECT_EQ(All(Op::kCast).front().src(0).dtype(), DType::kInt32);
}

TEST_F(NarrowIndicesTest, StoredIntegersKeepTheirType) {
  const UOp i = Range(0, 40);
  Store(At(0, 40, i, {}, DType::kInt64), Do(Op::kMul, i, 7), {i});
  const UOp value = All(Op::kStore).front().src(1);
  EXPECT_EQ(value.dtype(), DType::kInt64);
  EXPECT_EQ(value.bounds(), (Interval{0, 273}));
}

// The run counts the iterations of a processor's threads, and a range may have any number.
TEST_F(NarrowIndicesTest, RangesThatStayWide) {
  const UOp thread = Range(0, 40, AxisType::kThread), many = Range(1, int64_t{1} << 40);
  const UOp place = Do(Op::kFloorMod, many, 10);
  Store(At(0, 400, Do(Op::kAdd, Do(Op::kMul, thread, 10), place)),
        g_.ConstFloat(DType::kFloat32, 1), {thread, many});
  EXPECT_EQ(IndexOf(0).dtype(), DType::kInt32);
  for (const UOp range : All(Op::kRange)) EXPECT_EQ(range.dtype(), DType::kInt64);
}

TEST_F(NarrowIndicesTest, AnEndThatIsComputed) {
  const UOp i = Range(0, 40);
  const UOp j = g_.Range(1, AxisType::kReduce, Do(Op::kAdd, Do(Op::kFloorDiv, i, 8), 1));
  Store(At(0, 200, Do(Op::kAdd, Do(Op::kMul, i, 5), j)), g_.ConstFloat(DType::kFloat32, 1), {i, j});
  EXPECT_FALSE(HasI64(Op::kRange));
  EXPECT_FALSE(HasI64(Op::kFloorDiv));
}

TEST_F(NarrowIndicesTest, SpendsABudget) {
  const UOp i = Range(0, 40);
  const UOp store = g_.Make(Op::kStore, {At(0, 40, i), g_.ConstFloat(DType::kFloat32, 1)});
  const UOp root = g_.Make(Op::kSink, {g_.Make(Op::kEnd, {store, i})});
  Budget::Limits limits;
  limits.steps = 3;
  Budget budget(limits);
  EXPECT_EQ(NarrowIndices(&g_, root, &budget).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace telegrad
