// The bounds proof must accept what is inside and nothing else. Random accesses are decided twice:
// by the proof and by evaluating every point; a proof of an access that leaves its buffer is the
// one failure that must never happen.
#include "engine/lowering/bounds_proof.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/ir/text.h"

namespace telegrad {
namespace {

class BoundsProofTest : public ::testing::Test {
 protected:
  UOp Range(int64_t id, int64_t size) { return g_.Range(id, AxisType::kLoop, g_.Index(size)); }
  UOp Add(UOp x, UOp y) { return g_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t c) { return g_.Make(Op::kMul, {x, g_.Index(c)}); }
  UOp Lt(UOp x, UOp y) { return g_.Make(Op::kCmpLt, {x, y}); }
  UOp And(UOp x, UOp y) { return g_.Make(Op::kAnd, {x, y}); }
  UOp At(int64_t elements, UOp index, UOp gate = {}) {
    const UOp buffer = g_.Param(0, DType::kFloat32, Shape{elements});
    return gate.valid() ? g_.Make(Op::kIndex, {buffer, index, gate})
                        : g_.Make(Op::kIndex, {buffer, index});
  }
  Graph g_;
};

TEST_F(BoundsProofTest, AffineIndices) {
  const UOp i = Range(0, 4), j = Range(1, 8);
  const UOp flat = Add(Mul(i, 8), j);
  EXPECT_TRUE(ProveInside(At(32, flat)));
  EXPECT_FALSE(ProveInside(At(31, flat)));
  EXPECT_FALSE(ProveInside(At(32, Add(flat, g_.Index(1)))));
  EXPECT_FALSE(ProveInside(At(32, Add(flat, g_.Index(-1)))));
  EXPECT_TRUE(ProveInside(At(8, Add(Mul(j, -1), g_.Index(7)))));
}

TEST_F(BoundsProofTest, EveryLaneCounts) {
  const UOp lanes = g_.Make(Op::kIota, DType::kInt64, {}, {16});
  const UOp index = Add(Mul(Range(0, 4), 16), lanes);
  EXPECT_TRUE(ProveInside(At(64, index)));
  EXPECT_FALSE(ProveInside(At(63, index)));
}

// What a copy writes is the whole of its box; beyond the end of its source it reads 0.
TEST_F(BoundsProofTest, EveryElementThatACopyWritesCounts) {
  const UOp i = Range(0, 4);
  const auto unproved = [&](int64_t elements, UOp index, int64_t rows, int64_t columns) {
    const UOp local = g_.Make(Op::kBuffer, DType::kFloat32, {},
                              {static_cast<int64_t>(AddressSpace::kLocal), 0, elements});
    const UOp to = g_.Make(Op::kIndex, {local, index}), from = At(32, Mul(i, 8));
    const UOp copy = g_.Make(Op::kCopyAsync, DType::kVoid, {to, from}, {rows, columns, 16, 8});
    Budget budget;
    const auto report = ProveBounds(g_, PostOrder(copy), &budget);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->unproved.size() : 0;
  };
  EXPECT_EQ(unproved(32, Mul(i, 8), 1, 8), 0u);
  EXPECT_EQ(unproved(31, Mul(i, 8), 1, 8), 1u);
  EXPECT_EQ(unproved(32, Add(Mul(i, 8), g_.Index(1)), 1, 8), 1u);
  EXPECT_EQ(unproved(48, Mul(i, 8), 2, 8), 0u);
  EXPECT_EQ(unproved(47, Mul(i, 8), 2, 8), 1u);
}

// A lane names the first of the 8 elements of a row.
TEST_F(BoundsProofTest, TheWholeRowOfAMatrixCounts) {
  const UOp i = Range(0, 32);
  const auto unproved = [&](int64_t elements) {
    const UOp local = g_.Make(Op::kBuffer, DType::kFloat16, {},
                              {static_cast<int64_t>(AddressSpace::kLocal), 0, elements});
    const UOp load =
        g_.Make(Op::kLoadMatrix, DType::kVoid, {g_.Make(Op::kIndex, {local, Mul(i, 8)})}, {4, 0});
    Budget budget;
    const auto report = ProveBounds(g_, PostOrder(load), &budget);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->unproved.size() : 0;
  };
  EXPECT_EQ(unproved(256), 0u);
  EXPECT_EQ(unproved(255), 1u);
}

// The chunks of a row of which another one is exchanged in each row: all of them, and no more.
TEST_F(BoundsProofTest, ExchangedBitsStayBelowThoseThatThereAre) {
  const UOp row = Range(0, 8), chunk = Range(1, 4), shorter = Range(2, 3);
  const UOp half = g_.Make(Op::kFloorDiv, {row, g_.Index(2)});
  const auto at = [&](UOp x, UOp y) { return Add(Mul(row, 4), g_.Make(Op::kXor, {x, y})); };
  EXPECT_TRUE(ProveInside(At(32, at(chunk, half))));
  EXPECT_FALSE(ProveInside(At(31, at(chunk, half))));
  EXPECT_TRUE(ProveInside(At(32, at(shorter, shorter))));
  EXPECT_FALSE(ProveInside(At(31, at(shorter, half)))) << "2 ^ 1 is 3";
  EXPECT_FALSE(ProveInside(At(32, at(chunk, row)))) << "a bit that the chunks do not have";
  const UOp negative = Add(chunk, g_.Index(-1));
  EXPECT_FALSE(ProveInside(At(32, at(negative, half))));
}

// Words of 64 bits have no room above them.
TEST_F(BoundsProofTest, ExchangedBitsOfAWordAreAnything) {
  for (const DType dtype : {DType::kUInt8, DType::kUInt32, DType::kUInt64}) {
    const UOp from = g_.Param(1, dtype, Shape{1});
    const UOp word = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {from, g_.Index(0)})});
    const UOp exchanged = g_.Make(Op::kXor, {word, g_.Const(dtype, 57)});
    const UOp index = g_.Make(Op::kCast, DType::kInt64, {exchanged}, {});
    EXPECT_EQ(ProveInside(At(256, index)), dtype == DType::kUInt8) << Name(dtype);
    EXPECT_FALSE(ProveInside(At(255, index)));
  }
}

TEST_F(BoundsProofTest, GateOfAPaddedWindow) {
  // y + k - 1 of 8 rows, where it is one; the sum is spread over the whole index.
  const UOp y = Range(0, 8), k = Range(1, 3), x = Range(2, 5);
  const UOp row = Add(y, k);
  const UOp index = Add(Add(Mul(y, 5), Mul(k, 5)), Add(x, g_.Index(-5)));
  const UOp gate = And(Lt(g_.Index(0), row), Lt(row, g_.Index(9)));
  EXPECT_TRUE(ProveInside(At(40, index, gate)));
  EXPECT_FALSE(ProveInside(At(40, index)));
  EXPECT_FALSE(ProveInside(At(40, index, Lt(g_.Index(0), row)))) << "only half of the gate";
  EXPECT_FALSE(ProveInside(At(39, index, gate)));
  EXPECT_FALSE(ProveInside(At(40, index, And(Lt(g_.Index(0), row), Lt(row, g_.Index(10))))));
}

TEST_F(BoundsProofTest, DataDependentIndexNeedsItsGate) {
  const UOp load = g_.Make(
      Op::kLoad, {g_.Make(Op::kIndex, {g_.Param(1, DType::kInt64, Shape{4}), Range(0, 4)})});
  EXPECT_FALSE(ProveInside(At(10, load)));
  EXPECT_TRUE(ProveInside(At(10, load, And(Lt(g_.Index(-1), load), Lt(load, g_.Index(10))))));
  const UOp row = Add(Mul(load, 3), Range(1, 3));
  EXPECT_TRUE(ProveInside(At(30, row, And(Lt(g_.Index(-1), load), Lt(load, g_.Index(10))))));
}

TEST_F(BoundsProofTest, AComparisonThatMayWrapSaysOnlyWhatItCompared) {
  const UOp load = g_.Make(
      Op::kLoad, {g_.Make(Op::kIndex, {g_.Param(1, DType::kInt64, Shape{4}), Range(0, 4)})});
  // The largest load plus 5 is negative: below 10, and no reason to trust the load.
  const UOp plus = Add(load, g_.Index(5));
  EXPECT_FALSE(ProveInside(At(5, load, And(Lt(g_.Index(-1), load), Lt(plus, g_.Index(10))))));
  EXPECT_TRUE(ProveInside(At(10, plus, And(Lt(g_.Index(-1), plus), Lt(plus, g_.Index(10))))));
  EXPECT_TRUE(ProveInside(At(5, load, And(Lt(g_.Index(4), plus), Lt(plus, g_.Index(10))))))
      << "5 <= load + 5 < 10 wherever that has wrapped or not";
  const UOp negated = g_.Make(Op::kNeg, {load});
  EXPECT_TRUE(
      ProveInside(At(3, negated, And(Lt(g_.Index(-1), negated), Lt(negated, g_.Index(3))))));
  EXPECT_FALSE(ProveInside(At(3, load, And(Lt(g_.Index(-1), negated), Lt(negated, g_.Index(3))))));
}

TEST_F(BoundsProofTest, NarrowIntegersBoundWhatTheyAreCastTo) {
  const UOp load = g_.Make(
      Op::kLoad, {g_.Make(Op::kIndex, {g_.Param(1, DType::kUInt8, Shape{4}), Range(0, 4)})});
  const UOp wide = g_.Make(Op::kCast, DType::kInt64, {load});
  EXPECT_TRUE(ProveInside(At(256, wide)));
  EXPECT_FALSE(ProveInside(At(255, wide)));
  // Through a narrower type: 300 iterations do not fit into a byte.
  const auto through = [&](DType narrow, UOp u) {
    return g_.Make(Op::kCast, DType::kInt64, {g_.Make(Op::kCast, narrow, {u})});
  };
  EXPECT_TRUE(ProveInside(At(300, through(DType::kInt16, Range(1, 300)))));
  EXPECT_TRUE(ProveInside(At(256, through(DType::kUInt8, Range(1, 300)))));
  EXPECT_FALSE(ProveInside(At(300, through(DType::kInt8, Range(1, 300)))));
  const UOp lanes = g_.Make(Op::kIota, DType::kInt8, {}, {300});
  EXPECT_FALSE(ProveInside(At(300, g_.Make(Op::kCast, DType::kInt64, {lanes})))) << "-128 to 127";
}

TEST_F(BoundsProofTest, QuotientAndRemainderOfOneValueMoveTogether) {
  // 16 k - 47 (k / 3) is 16 (k % 3) + k / 3.
  const UOp k = Range(0, 12);
  const UOp index = Add(Mul(k, 16), Mul(g_.Make(Op::kFloorDiv, {k, g_.Index(3)}), -47));
  EXPECT_TRUE(ProveInside(At(36, index)));
  EXPECT_FALSE(ProveInside(At(35, index)));
  const UOp rest = Add(k, Mul(g_.Make(Op::kFloorMod, {k, g_.Index(3)}), -1));
  EXPECT_TRUE(ProveInside(At(10, rest)));
  EXPECT_FALSE(ProveInside(At(9, rest)));
}

// A row of 14 behind the other: p = 14 (p / 14) + p % 14, and the gate is about these.
TEST_F(BoundsProofTest, GateOfAWindowAcrossRows) {
  const UOp t = Range(0, 12), lane = g_.Make(Op::kIota, DType::kInt64, {}, {16});
  const UOp p = Add(Mul(t, 16), lane);
  const UOp index = Add(p, g_.Index(-15));  // one row up and one to the left
  const auto gate = [&](UOp row, UOp column) {
    return And(And(Lt(g_.Index(0), row), Lt(row, g_.Index(15))), Lt(g_.Index(0), column));
  };
  const auto div = [&](UOp x) { return g_.Make(Op::kFloorDiv, {x, g_.Index(14)}); };
  const auto mod = [&](UOp x) { return g_.Make(Op::kFloorMod, {x, g_.Index(14)}); };
  EXPECT_TRUE(ProveInside(At(192 - 15, index, gate(div(p), mod(p)))));
  EXPECT_FALSE(ProveInside(At(192 - 16, index, gate(div(p), mod(p)))));
  EXPECT_FALSE(ProveInside(At(192, Add(index, g_.Index(-1)), gate(div(p), mod(p)))));
  EXPECT_FALSE(ProveInside(At(192, index, Lt(g_.Index(0), mod(p))))) << "the first row";
  // As the simplifier writes it: p / 14 is t + y / 14, and the row's condition one on p itself.
  const UOp y = Add(Mul(t, 2), lane);
  EXPECT_TRUE(ProveInside(At(192, index, gate(Add(t, div(y)), mod(y)))));
  EXPECT_TRUE(ProveInside(At(192, index, And(Lt(g_.Index(13), p), Lt(g_.Index(0), mod(p))))));
  EXPECT_FALSE(ProveInside(At(192, index, And(Lt(g_.Index(12), p), Lt(g_.Index(0), mod(p))))));
}

TEST_F(BoundsProofTest, FactsAreCongruentToTheirCoefficients) {
  // 4 i + 1 below 31 is at most 29.
  const UOp index = Add(Mul(Range(0, 100), 4), g_.Index(1));
  EXPECT_TRUE(ProveInside(At(30, index, Lt(index, g_.Index(31)))));
  EXPECT_FALSE(ProveInside(At(29, index, Lt(index, g_.Index(31)))));
}

TEST_F(BoundsProofTest, FactsTightenEachOther) {
  const UOp i = Range(0, 6), j = Range(1, 2);
  const UOp sum = Add(Mul(i, 2), j);
  // From 0 < i, 2 i + j is at least 2.
  EXPECT_TRUE(
      ProveInside(At(10, Add(sum, g_.Index(-2)), And(Lt(g_.Index(0), sum), Lt(g_.Index(0), i)))));
  // 3 i + 2 j - 2 from 0 < i + j: twice the fact, and one i is left.
  EXPECT_TRUE(ProveInside(
      At(16, Add(Add(Mul(i, 3), Mul(j, 2)), g_.Index(-2)), Lt(g_.Index(0), Add(i, j)))));
  EXPECT_TRUE(ProveInside(At(1, Add(i, g_.Index(70)), And(Lt(i, g_.Index(2)), Lt(g_.Index(3), i)))))
      << "a gate that contradicts itself is never true";
  const UOp x = Add(Mul(i, 3), g_.Index(5));
  EXPECT_TRUE(ProveInside(At(4, x, And(Lt(g_.Index(-1), x), Lt(x, g_.Index(4))))))
      << "one whose values of i would be below 0, neither";
}

TEST_F(BoundsProofTest, DivisionsWithinDivisionsEnd) {
  UOp u = Range(0, 1000);
  for (int i = 0; i < 40; ++i) {
    const UOp q = g_.Make(Op::kFloorDiv, {u, g_.Index(2)});
    const UOp r = g_.Make(Op::kFloorMod, {u, g_.Index(3)});
    u = Add(Add(u, q), Add(r, Mul(g_.Make(Op::kFloorMod, {Add(u, q), g_.Index(5)}), 7)));
  }
  EXPECT_FALSE(ProveInside(At(10, u, Lt(u, g_.Index(1'000'000)))));
}

TEST_F(BoundsProofTest, CountsWhatDecidesAnIndex) {
  const UOp i = Range(0, 4);
  const UOp data = g_.Param(1, DType::kInt64, Shape{4});
  const UOp first = g_.Make(Op::kIndex, {data, i});
  const UOp load = g_.Make(Op::kLoad, {first});
  const UOp by_data = At(4, load), outside = At(3, i), inside = At(4, i);
  const UOp scratch =
      g_.Make(Op::kIndex, {g_.Make(Op::kBuffer, DType::kFloat32, {},
                                   {static_cast<int64_t>(AddressSpace::kRegister), 0, 1}),
                           g_.Index(0)});
  const std::vector<uint32_t> order = {first.id(),   load.id(),   by_data.id(),
                                       outside.id(), inside.id(), scratch.id()};
  Budget budget;
  const BoundsReport report = *ProveBounds(g_, order, &budget);
  EXPECT_EQ(report.unproved, (std::vector<UOp>{by_data, outside}));
  EXPECT_EQ(report.stats.proved, 2);
  EXPECT_EQ(report.stats.gated, 1);
  EXPECT_EQ(report.stats.data_dependent, 1);
}

TEST_F(BoundsProofTest, SpendsABudget) {
  std::vector<uint32_t> order;
  for (int64_t i = 0; i < 100; ++i) order.push_back(At(4, Range(i, 4)).id());
  Budget::Limits limits;
  limits.steps = 150;
  Budget budget(limits);
  const auto report = ProveBounds(g_, order, &budget);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kResourceExhausted) << report.status();
  Budget cancelled;
  cancelled.Cancel();
  EXPECT_EQ(ProveBounds(g_, order, &cancelled).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(BoundsProofTest, OverflowProvesNothing) {
  const UOp huge = Mul(Mul(Range(0, int64_t{1} << 40), int64_t{1} << 30), 4);
  EXPECT_FALSE(ProveInside(At(100, huge)));
}

TEST_F(BoundsProofTest, IndicesOf32Bits) {
  const auto range = [&](int64_t id, int64_t size) {
    return g_.Range(id, AxisType::kLoop, g_.Const(DType::kInt32, size));
  };
  const auto constant = [&](int64_t c) { return g_.Const(DType::kInt32, c); };
  const UOp i = range(0, 4), j = range(1, 8);
  const UOp flat = Add(g_.Make(Op::kMul, {i, constant(8)}), j);
  EXPECT_TRUE(ProveInside(At(32, flat)));
  EXPECT_FALSE(ProveInside(At(31, flat)));
  EXPECT_TRUE(ProveInside(At(31, flat, Lt(flat, constant(31)))));
  // The sum is inside of the buffer where no more than 32 bits are computed, and negative.
  const UOp far = Add(flat, constant(INT32_MAX - 30));
  EXPECT_FALSE(ProveInside(At(int64_t{1} << 32, far)));
  EXPECT_TRUE(ProveInside(At(int64_t{1} << 32, Add(flat, constant(INT32_MAX - 31)))));
  // Sums that wrap on the way, and back.
  EXPECT_TRUE(ProveInside(At(32, Add(far, constant(30 - INT32_MAX)))));
  // A gate on a sum that wraps says nothing of the sum.
  EXPECT_FALSE(ProveInside(At(31, flat, Lt(far, constant(INT32_MAX)))));
  // A cast keeps what fits.
  const UOp wide = Mul(Range(2, 8), 4);
  const auto cast = [&](DType to, UOp u) { return g_.Make(Op::kCast, to, {u}); };
  EXPECT_TRUE(ProveInside(At(29, cast(DType::kInt32, wide))));
  EXPECT_FALSE(ProveInside(At(29, cast(DType::kInt32, Add(wide, g_.Index(int64_t{1} << 32))))));
  EXPECT_FALSE(ProveInside(At(29, cast(DType::kInt8, wide))));  // of no other type
}

// Both widths and casts between them, near the values at which an i32 wraps.
TEST_F(BoundsProofTest, NeverAcceptsAnIndexThatWrapsOutOfItsBuffer) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % n); };
  const auto wrap = [](int64_t x) { return static_cast<int64_t>(static_cast<int32_t>(x)); };
  const auto high = [&] {
    const int64_t steps[] = {
        0, 0, int64_t{1} << 31, int64_t{1} << 30, -(int64_t{1} << 31), int64_t{1} << 32};
    return steps[below(6)] + below(9) - 4;
  };
  constexpr DType kNarrow = DType::kInt32;
  int proved = 0, inside = 0;
  for (int round = 0; round < 20'000; ++round) {
    const int64_t n = 1 + below(6), m = 1 + below(6), size = 1 + below(40);
    // Factors that fit, and that wrap.
    const int64_t a = below(3) == 0 ? wrap(high()) : below(9) - 3, b = below(9) - 3;
    const int64_t c = wrap(high()), d = high(), e = wrap(high()), lo = below(9) - 4,
                  hi = below(20) - 2;
    const bool through_i64 = below(3) == 0, gated = below(2) == 0, divided = below(3) == 0;
    const int64_t divisor = 1 + below(4);
    const auto constant = [&](int64_t v) { return g_.Const(kNarrow, v); };
    const UOp i = g_.Range(10, AxisType::kLoop, constant(n));
    const UOp j = g_.Range(11, AxisType::kLoop, constant(m));
    UOp index = Add(Add(g_.Make(Op::kMul, {i, constant(a)}), g_.Make(Op::kMul, {j, constant(b)})),
                    constant(c));
    if (through_i64) {
      const UOp wide = Add(g_.Make(Op::kCast, DType::kInt64, {index}), g_.Index(d));
      index = g_.Make(Op::kCast, kNarrow, {wide});
    }
    if (divided) index = g_.Make(Op::kFloorDiv, {index, constant(divisor)});
    index = Add(index, constant(e));
    const UOp gate = And(Lt(constant(lo), index), Lt(index, constant(hi)));
    const bool accepted = ProveInside(gated ? At(size, index, gate) : At(size, index));
    bool leaves = false;
    for (int64_t x = 0; x < n; ++x) {
      for (int64_t y = 0; y < m; ++y) {
        int64_t at = wrap(wrap(wrap(a * x) + wrap(b * y)) + c);
        if (through_i64) at = wrap(at + d);
        if (divided) at = at >= 0 ? at / divisor : -((-at + divisor - 1) / divisor);
        at = wrap(at + e);
        if (gated && !(lo < at && at < hi)) continue;
        leaves |= at < 0 || at >= size;
      }
    }
    ASSERT_FALSE(accepted && leaves) << Print(index) << "gate " << gated << "\n" << Print(gate);
    proved += accepted;
    inside += !leaves;
  }
  EXPECT_GT(proved, inside / 4) << "of " << inside << " that stay inside";
}

TEST_F(BoundsProofTest, NeverAcceptsAnAccessThatLeavesItsBuffer) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % n); };
  int proved = 0, inside = 0;
  for (int round = 0; round < 4000; ++round) {
    const int64_t n = 1 + below(6), m = 1 + below(6);
    const int64_t a = below(9) - 3, b = below(9) - 3, c = below(13) - 4;
    const int64_t d = 1 + below(4), lo = below(9) - 4, hi = below(20) - 2, size = 1 + below(40);
    const int shape = static_cast<int>(below(4));
    const UOp i = Range(10, n), j = Range(11, m);
    UOp index = Add(Add(Mul(i, a), Mul(j, b)), g_.Index(c));
    if (shape == 1) index = g_.Make(Op::kFloorDiv, {index, g_.Index(d)});
    if (shape == 2) index = g_.Make(Op::kFloorMod, {index, g_.Index(d)});
    const UOp sum = Add(Mul(i, 2), j);
    const bool gated = below(2) == 0;
    const UOp gate = And(Lt(g_.Index(lo), sum), Lt(sum, g_.Index(hi)));
    const bool accepted = ProveInside(gated ? At(size, index, gate) : At(size, index));
    bool leaves = false;
    for (int64_t x = 0; x < n; ++x) {
      for (int64_t y = 0; y < m; ++y) {
        if (gated && !(lo < 2 * x + y && 2 * x + y < hi)) continue;
        int64_t at = a * x + b * y + c;
        const int64_t q = at >= 0 ? at / d : -((-at + d - 1) / d);
        if (shape == 1) at = q;
        if (shape == 2) at -= q * d;
        leaves |= at < 0 || at >= size;
      }
    }
    ASSERT_FALSE(accepted && leaves) << Print(index) << "gate " << gated << "\n" << Print(gate);
    proved += accepted;
    inside += !leaves;
  }
  EXPECT_GT(proved, inside / 3) << "of " << inside << " that stay inside";
}

TEST_F(BoundsProofTest, NeverAcceptsAWindowThatLeavesItsBuffer) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % n); };
  int proved = 0, inside = 0;
  for (int round = 0; round < 6000; ++round) {
    const int64_t n = 1 + below(6), m = 1 + below(5), c = 2 + below(5), step = 1 + below(7);
    const int64_t times = 1 + below(3), x = below(4), shift = -below(10), size = 1 + below(60);
    const int64_t low = below(3) - 1, high = below(6), left = below(3) - 1, right = below(c + 2);
    const UOp i = Range(10, n), j = Range(11, m);
    const UOp p = Add(Mul(i, step), j);
    const UOp row = Add(g_.Make(Op::kFloorDiv, {p, g_.Index(c)}), Mul(i, x));
    const UOp column = g_.Make(Op::kFloorMod, {p, g_.Index(c)});
    const UOp gate = And(And(Lt(g_.Index(low), row), Lt(row, g_.Index(high))),
                         And(Lt(g_.Index(left), column), Lt(column, g_.Index(right))));
    const UOp index = Add(Add(Mul(p, times), Mul(i, x * c * times)), g_.Index(shift));
    const bool accepted = ProveInside(At(size, index, gate));
    bool leaves = false;
    for (int64_t a = 0; a < n; ++a) {
      for (int64_t b = 0; b < m; ++b) {
        const int64_t at = a * step + b, r = at / c + a * x, k = at % c;
        if (low >= r || r >= high || left >= k || k >= right) continue;
        const int64_t element = at * times + a * x * c * times + shift;
        leaves |= element < 0 || element >= size;
      }
    }
    ASSERT_FALSE(accepted && leaves) << Print(index) << Print(gate) << "size " << size;
    proved += accepted;
    inside += !leaves;
  }
  EXPECT_GT(proved, inside / 2) << "of " << inside << " that stay inside";
}

// A loaded value may be any, so sums with it wrap: both sides are evaluated as the machine does.
TEST_F(BoundsProofTest, NeverTrustsAComparisonThatWrapped) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 rng(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % n); };
  struct Scaled {
    int64_t k, c;
    int64_t At(int64_t v) const {
      return static_cast<int64_t>(static_cast<uint64_t>(k) * static_cast<uint64_t>(v) +
                                  static_cast<uint64_t>(c));
    }
  };
  const UOp load = g_.Make(
      Op::kLoad, {g_.Make(Op::kIndex, {g_.Param(1, DType::kInt64, Shape{4}), Range(0, 4)})});
  const auto build = [&](const Scaled& s) { return Add(Mul(load, s.k), g_.Index(s.c)); };
  const auto scaled = [&] {
    static constexpr int64_t kFactors[] = {1, 1, -1, 2, 3, -2};
    return Scaled{kFactors[below(6)], below(13) - 6};
  };
  std::vector<int64_t> values;
  for (int64_t v = -30; v <= 30; ++v) {
    values.push_back(v);
    values.push_back(static_cast<int64_t>(static_cast<uint64_t>(INT64_MIN) + v));
    values.push_back(static_cast<int64_t>(static_cast<uint64_t>(INT64_MIN) / 2 + v));
  }
  int proved = 0;
  for (int round = 0; round < 20'000; ++round) {
    struct Condition {
      Scaled form;
      int64_t bound;
      bool upper;
    };
    std::vector<Condition> conditions;
    UOp gate = g_.True();
    for (int64_t n = 2 + below(2); n > 0; --n) {
      const Condition c{scaled(), below(20) - 5, below(2) == 0};
      conditions.push_back(c);
      const UOp form = build(c.form), bound = g_.Index(c.bound);
      gate = And(gate, c.upper ? Lt(form, bound) : Lt(bound, form));
    }
    const Scaled index = scaled();
    const int64_t size = 1 + below(30);
    if (!ProveInside(At(size, build(index), gate))) continue;
    ++proved;
    for (int64_t v : values) {
      const bool open = std::ranges::all_of(conditions, [&](const Condition& c) {
        return c.upper ? c.form.At(v) < c.bound : c.bound < c.form.At(v);
      });
      const int64_t at = index.At(v);
      ASSERT_TRUE(!open || (0 <= at && at < size)) << "loaded " << v << "\n"
                                                   << Print(build(index)) << Print(gate);
    }
  }
  EXPECT_GT(proved, 300);
}

}  // namespace
}  // namespace telegrad
