// Random conjunctions of comparisons and random indices with divisions, at every point of a small
// space: what the facts decide, the bounds that they give and the simplified index must hold
// wherever the conjunction does.
#include "engine/rules/facts.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/ir/text.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/rules/test_evaluator.h"

namespace telegrad {
namespace {

class FactsTest : public ::testing::Test {
 protected:
  FactsTest() : b_(&g_, {&kAlgebra, &kDivMod}, &budget_) {}

  UOp Range(int64_t id, int64_t size) { return g_.Range(id, AxisType::kLoop, g_.Index(size)); }
  UOp Make(Op op, UOp x, int64_t c) { return b_.Make(op, {x, g_.Index(c)}); }
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Less(UOp x, UOp y) { return b_.Make(Op::kCmpLt, {x, y}); }

  Graph g_;
  Budget budget_;
  Rewriter b_;
};

TEST_F(FactsTest, TheGateLeavesOneQuotient) {
  const UOp i = Range(0, 4), j = Range(1, 8);
  // Rows of 9 that are read as rows of 8, where the column is below 5.
  const UOp flat = Add(Make(Op::kMul, i, 8), j);
  const UOp column = Make(Op::kFloorMod, flat, 9), row = Make(Op::kFloorDiv, flat, 9);
  const UOp gate = Less(column, g_.Index(5));
  const UOp index = Add(Make(Op::kMul, row, 5), column);
  EXPECT_EQ(SimplifyUnder(b_, gate, index), Add(Make(Op::kMul, i, 4), j));
  EXPECT_EQ(SimplifyUnder(b_, g_.True(), index), index) << "without a gate it stays";
}

TEST_F(FactsTest, AConditionThatTheOthersImplyGoes) {
  const UOp i = Range(0, 9), j = Range(1, 9);
  const UOp positive = Less(g_.Index(0), i);
  EXPECT_EQ(b_.Make(Op::kAnd, {Less(g_.Index(0), Add(i, j)), positive}), positive);
  EXPECT_EQ(b_.Make(Op::kAnd, {Less(Add(i, j), g_.Index(1)), positive}), g_.Const(DType::kBool, 0));
}

TEST_F(FactsTest, RandomGates) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  int simplified = 0, decided = 0;
  for (int round = 0; round < 3000; ++round) {
    Graph g;
    Budget budget;
    Rewriter b(&g, {&kAlgebra, &kDivMod}, &budget);
    const int64_t n = 1 + below(9), m = 1 + below(9);
    const UOp i = g.Range(0, AxisType::kLoop, g.Index(n));
    const UOp j = g.Range(1, AxisType::kLoop, g.Index(m));
    const auto form = [&] {
      const UOp x = b.Make(Op::kMul, {i, g.Index(below(9) - 4)});
      const UOp y = b.Make(Op::kMul, {j, g.Index(below(9) - 4)});
      return b.Make(Op::kAdd, {b.Make(Op::kAdd, {x, y}), g.Index(below(15) - 5)});
    };
    // Raw, so that the comparisons are not already what the rules make of them together.
    const auto condition = [&] {
      const UOp x = form(), y = below(2) == 0 ? g.Index(below(20) - 6) : form();
      return g.Make(below(5) == 0 ? Op::kCmpEq : Op::kCmpLt, {x, y});
    };
    const UOp gate = g.Make(Op::kAnd, {condition(), condition()}), other = condition();
    const UOp index = b.Make(Op::kAdd, {b.Make(below(2) == 0 ? Op::kFloorDiv : Op::kFloorMod,
                                               {form(), g.Index(1 + below(7))}),
                                        form()});
    const UOp under = SimplifyUnder(b, gate, index);
    Facts facts;
    facts.AddAll(gate);
    const std::optional<bool> known = facts.Decide(other);
    const auto sum = Linear::Of(index);
    ASSERT_TRUE(sum.has_value());
    const auto range = facts.Range(*sum);
    simplified += under != index;
    decided += known.has_value();
    for (int64_t p = 0; p < n * m; ++p) {
      test::Environment values;
      values[i.id()] = {DType::kInt64, p % n, 0};
      values[j.id()] = {DType::kInt64, p / n, 0};
      if (test::Evaluate(gate, values).i == 0) continue;
      const auto value = test::Evaluate(index, values).i;
      ASSERT_EQ(static_cast<int64_t>(value), static_cast<int64_t>(test::Evaluate(under, values).i))
          << Print(gate) << Print(index) << Print(under);
      ASSERT_TRUE(range && range->lo <= value && value <= range->hi) << Print(gate) << Print(index);
      if (known) {
        ASSERT_EQ(test::Evaluate(other, values).i != 0, *known) << Print(gate) << Print(other);
      }
    }
  }
  EXPECT_GT(simplified, 100);
  EXPECT_GT(decided, 100);
}

}  // namespace
}  // namespace telegrad
