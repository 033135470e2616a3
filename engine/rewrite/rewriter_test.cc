// The rewriter: which nodes patterns match, conditions, whole sweeps, rules that undo each
// other, budgets, and explanations of what did not match.
#include "engine/rewrite/rewriter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/rewrite/match.h"
#include "engine/rewrite/rule.h"
#include "engine/rewrite/rule_counts.h"

namespace telegrad {
namespace {

using namespace pattern;  // NOLINT: the names of rows
using ::testing::HasSubstr;

constexpr Rule kTestRows[] = {
    rule((x + c0) + c1, x + (c0 + c1), when(kInts)),
    rule(x * 1, x),
    rule(x * 0, 0, when(kInts)),
    rule(x % c0, x, when(kSigned, 0 <= lo(x) && hi(x) < c0)),
    rule(x - x, 0, when(kInts)),
    rule(max(x, y) + x,
         [](Rewriter& b, const Match& m) -> UOp {
           return m.y().is(Op::kNeg) ? b.Make(Op::kSub, {m.x(), m.y()}) : UOp();
         }),
};
constexpr RuleTable kTestTable{"test", kTestRows};

// The two rows undo each other, and the third grows its operand forever.
constexpr Rule kBadRows[] = {
    rule(x + x, x * 2),
    rule(x * 2, x + x),
    rule(-x, -(x + 1)),
};
constexpr RuleTable kBad{"bad", kBadRows};

class RewriterTest : public ::testing::Test {
 protected:
  UOp Vector(int64_t slot, DType dtype = DType::kInt32) {
    return graph_.Param(slot, dtype, Shape{4});
  }
  UOp Const(int64_t value, DType dtype = DType::kInt32) { return graph_.Const(dtype, value); }

  Graph graph_;
  Budget budget_;
};

TEST_F(RewriterTest, PatternsPrintAsTheyAreWritten) {
  EXPECT_EQ(Text(kTestRows[0]), "(x + c0) + c1 -> x + (c0 + c1) on signed|unsigned");
  EXPECT_EQ(Text(where(x, -y, max(z, -0.0))), "where(x, -y, max(z, -0.0))");
  EXPECT_THAT(Text(kTestRows[5]), HasSubstr("max(x, y) + x -> computed"));
  EXPECT_EQ(kTestRows[1].line, kTestRows[0].line + 1);
}

TEST_F(RewriterTest, MatchesEitherOrderOfOperands) {
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  const UOp v = Vector(0);
  EXPECT_EQ(b.Make(Op::kMul, {Const(1), v}), v);
  const UOp sum = b.Make(Op::kAdd, {Const(4), b.Make(Op::kAdd, {Const(3), v})});
  EXPECT_EQ(sum, graph_.Make(Op::kAdd, {v, Const(7)}));
}

TEST_F(RewriterTest, FunctionsMaySayNo) {
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  const UOp v = Vector(0), w = Vector(1);
  const UOp no = b.Make(Op::kAdd, {b.Make(Op::kMax, {v, w}), v});
  EXPECT_EQ(no.op(), Op::kAdd);
  const UOp minus = b.Make(Op::kNeg, {w});
  // The negated operand is the left one, so the row matches only in the other order of max.
  EXPECT_EQ(b.Make(Op::kAdd, {b.Make(Op::kMax, {minus, v}), v}), graph_.Make(Op::kSub, {v, minus}));
}

TEST_F(RewriterTest, TypesAndConditionsGuard) {
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  const UOp f = Vector(0, DType::kFloat32);
  EXPECT_EQ(b.Make(Op::kMul, {f, Const(0, DType::kFloat32)}).op(), Op::kMul);
  EXPECT_EQ(b.Make(Op::kMul, {f, Const(1, DType::kFloat32)}), f);
  const UOp r = graph_.Range(0, AxisType::kLoop, graph_.Index(8));
  EXPECT_EQ(b.Make(Op::kFloorMod, {r, graph_.Index(8)}), r);
  EXPECT_NE(b.Make(Op::kFloorMod, {r, graph_.Index(7)}), r);
  // Constants wrap in the element type, conditions do not.
  const UOp u = Vector(1, DType::kUInt8);
  const UOp sum = b.Make(
      Op::kAdd, {b.Make(Op::kAdd, {u, Const(200, DType::kUInt8)}), Const(100, DType::kUInt8)});
  EXPECT_EQ(sum, graph_.Make(Op::kAdd, {u, Const(44, DType::kUInt8)}));
}

TEST_F(RewriterTest, ScalarsBroadcastOrExpand) {
  const UOp v = Vector(0);
  Rewriter broadcast(&graph_, {&kTestTable}, &budget_);
  EXPECT_EQ(broadcast.Make(Op::kMul, {v, Const(0)}), Const(0));
  Rewriter exact(&graph_, {&kTestTable}, &budget_, Shapes::kExact);
  const UOp zeros = exact.Make(Op::kMul, {v, Const(0)});
  EXPECT_EQ(zeros.op(), Op::kExpand);
  EXPECT_TRUE(std::ranges::equal(zeros.shape(), v.shape()));
  // A sweep keeps the shape wherever the consumer does not broadcast.
  const UOp reduced =
      graph_.Make(Op::kReduce, {graph_.Make(Op::kMul, {v, Const(0)})}, std::vector<int64_t>{0, 0});
  const UOp swept = broadcast.Rewrite(reduced);
  ASSERT_TRUE(swept.valid()) << graph_.status();
  EXPECT_EQ(swept.src(0), zeros);
  EXPECT_EQ(broadcast.Rewrite(graph_.Make(Op::kMul, {v, Const(0)})), zeros);
}

TEST_F(RewriterTest, ScalarsExpandToSymbolicDims) {
  const UOp n = graph_.Make(Op::kVar, DType::kInt64, {}, {0, 1, 4, 1});
  const UOp part = graph_.Make(Op::kShrink, DType::kVoid, {Vector(0), n}, {0, -2});
  ASSERT_TRUE(part.valid()) << graph_.status();
  Rewriter exact(&graph_, {&kTestTable}, &budget_, Shapes::kExact);
  const UOp zeros = exact.Make(Op::kMul, {part, Const(0)});
  ASSERT_TRUE(zeros.valid()) << graph_.status();
  EXPECT_EQ(zeros.op(), Op::kExpand);
  EXPECT_EQ(zeros.dim(0), part.dim(0));
  // The whole vector has the same upper bound, but is not the same shape.
  EXPECT_FALSE(exact.WithShapeOf(Vector(0), part).valid());
  EXPECT_EQ(exact.WithShapeOf(part, part), part);
}

TEST_F(RewriterTest, RewriteSweepsWholeGraphs) {
  UOp u = Vector(0);
  for (int i = 0; i < 20'000; ++i) u = graph_.Make(Op::kAdd, {u, Const(1)});
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  EXPECT_EQ(b.Rewrite(u), graph_.Make(Op::kAdd, {Vector(0), Const(20'000)}));
}

TEST_F(RewriterTest, RulesThatUndoEachOtherEnd) {
  Budget::Limits limits;
  limits.rewrites = 20'000;
  Budget small(limits);
  Rewriter b(&graph_, {&kBad}, &small);
  EXPECT_TRUE(b.Make(Op::kAdd, {Vector(0), Vector(0)}).valid());
  EXPECT_LT(small.rewrites_spent(), 10);
  EXPECT_TRUE(b.Make(Op::kNeg, {Vector(0)}).valid() ||
              graph_.status().code() == absl::StatusCode::kResourceExhausted);
}

TEST_F(RewriterTest, BudgetIsSticky) {
  Budget::Limits limits;
  limits.rewrites = 50;
  Budget small(limits);
  Rewriter b(&graph_, {&kTestTable}, &small);
  UOp u = Vector(0);
  for (int i = 0; i < 200; ++i) u = graph_.Make(Op::kAdd, {u, Const(1)});
  EXPECT_FALSE(b.Rewrite(u).valid());
  EXPECT_EQ(graph_.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(b.Make(Op::kAdd, {Vector(0), Const(1)}).valid());
}

TEST_F(RewriterTest, ErrorsAreStickyInTheGraph) {
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  EXPECT_FALSE(b.Make(Op::kAdd, {Vector(0), Vector(1, DType::kFloat32)}).valid());
  EXPECT_FALSE(graph_.status().ok());
}

TEST_F(RewriterTest, ExplainsWhyARuleDidNotMatch) {
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  const UOp v = Vector(0), f = Vector(1, DType::kFloat32), four = Const(4);
  EXPECT_EQ(Explain(kTestRows[2], graph_.Make(Op::kMul, {f, f}), b),
            "the element type f32 is not one of the row's");
  EXPECT_EQ(Explain(kTestRows[2], graph_.Make(Op::kMul, {v, v}), b),
            "expected 0, found %0 (param)");
  EXPECT_EQ(Explain(kTestRows[2], graph_.Make(Op::kNeg, {v}), b), "expected x * 0, found %5 (neg)");
  EXPECT_EQ(Explain(kTestRows[4], graph_.Make(Op::kSub, {v, four}), b),
            "expected x = %0 (param), found %2 (const 4)");
  EXPECT_EQ(Explain(kTestRows[2], graph_.Make(Op::kMul, {v, Const(0)}), b),
            "matches, giving %7 (const 0)");
  const UOp r = graph_.Range(0, AxisType::kLoop, Const(9));
  EXPECT_EQ(Explain(kTestRows[3], graph_.Make(Op::kFloorMod, {r, four}), b),
            "hi(x) < c0 is false: hi(x) = 8, c0 = 4");
  EXPECT_EQ(Explain(kTestRows[5], graph_.Make(Op::kAdd, {graph_.Make(Op::kMax, {v, v}), v}), b),
            "the pattern matches, but the row's function found nothing to do");
}

class Recorder : public RewriteObserver {
 public:
  void OnTry(const RuleTry& what) override { tries.push_back(what); }
  std::vector<RuleTry> tries;
};

TEST_F(RewriterTest, TellsItsObserverOfEveryTry) {
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  Recorder recorder;
  b.Observe(&recorder);
  const UOp v = Vector(0), three = Const(3);
  const UOp sum = graph_.Make(Op::kAdd, {v, three});
  const UOp out = b.Make(Op::kAdd, {sum, Const(4)});
  ASSERT_FALSE(recorder.tries.empty());
  // The replacement v + 7 was tried and left alone before the row that made it was reported.
  const RuleTry& last = recorder.tries.back();
  EXPECT_EQ(last.rule, &kTestRows[0]);
  EXPECT_EQ(last.table, &kTestTable);
  EXPECT_EQ(last.before, graph_.Make(Op::kAdd, {sum, Const(4)}));
  EXPECT_EQ(last.after, out);
  for (const RuleTry& t : recorder.tries) EXPECT_EQ(t.after.valid(), &t == &last);
  const size_t tries = recorder.tries.size();
  b.Observe(nullptr);
  b.Make(Op::kMul, {v, Const(1)});
  EXPECT_EQ(recorder.tries.size(), tries);
}

TEST_F(RewriterTest, CountsHitsMissesAndSampledTime) {
  constexpr int kNodes = 1000;
  Rewriter b(&graph_, {&kTestTable}, &budget_);
  RuleCounts counts;
  b.Observe(&counts);
  for (int i = 0; i < kNodes; ++i) {
    b.Make(Op::kMul, {Vector(i), Const(1)});
    b.Make(Op::kMul, {Vector(i), Const(2)});
  }
  EXPECT_EQ(counts.Of(kTestRows[1]).hits, kNodes);
  EXPECT_EQ(counts.Of(kTestRows[1]).misses, kNodes);
  EXPECT_EQ(counts.Of(kTestRows[2]).hits, 0);
  EXPECT_EQ(counts.Of(kTestRows[2]).misses, kNodes) << "the first row has taken the other products";
  int64_t tries = 0, timed = 0;
  for (const RuleCounts::Count& c : counts.All()) {
    tries += c.tries();
    timed += c.timed;
    EXPECT_GE(c.nanoseconds, 0);
  }
  EXPECT_NEAR(timed, tries / Rewriter::kTriesPerSample, 1);
  EXPECT_THAT(counts.Report(), HasSubstr("x * 1 -> x"));
  EXPECT_THAT(counts.Report(), HasSubstr("engine/rewrite/rewriter_test.cc:"));
}

}  // namespace
}  // namespace telegrad
