// The bounds proof must accept what is inside and nothing else. Random accesses are decided twice:
// by the proof and by evaluating every point; a proof of an access that leaves its buffer is the
// one failure that must never happen.
#include "engine/lowering/bounds_proof.h"

#include <gtest/gtest.h>

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

TEST_F(BoundsProofTest, OverflowProvesNothing) {
  const UOp huge = Mul(Mul(Range(0, int64_t{1} << 40), int64_t{1} << 30), 4);
  EXPECT_FALSE(ProveInside(At(100, huge)));
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

}  // namespace
}  // namespace telegrad
