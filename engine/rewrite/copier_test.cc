// Copies of graphs with nodes replaced: what becomes of the others, and how a copy fails.
#include "engine/rewrite/copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "engine/ir/text.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// NEG(x) + EXP2(NEG(x)), one NEG.
FrozenGraph SomeGraph() {
  Graph g;
  const int64_t dims[] = {4};
  const UOp minus = g.Make(Op::kNeg, {g.Param(0, DType::kFloat32, dims)});
  return Freeze(g.Make(Op::kAdd, {minus, g.Make(Op::kExp2, {minus})}));
}

TEST(CopierTest, NothingReplacedIsTheSameGraph) {
  const FrozenGraph graph = SomeGraph();
  Budget budget;
  Copier copier(graph);
  const auto copy = copier.Run(&budget, [&](UOp u) { return copier.Same(u); });
  ASSERT_TRUE(copy.ok()) << copy.status();
  EXPECT_NE(copy->graph, graph.graph);
  EXPECT_EQ(Print(copy->root()), Print(graph.root()));
}

TEST(CopierTest, UsersHaveWhatANodeHasBecome) {
  const FrozenGraph graph = SomeGraph();
  Budget budget;
  Copier copier(graph);
  const auto copy = copier.Run(&budget, [&](UOp u) {
    if (!u.is(Op::kNeg)) return copier.Same(u);
    EXPECT_FALSE(copier.Made(u).valid());
    const UOp x = copier.Made(u.src(0));
    EXPECT_EQ(x.graph(), copier.out());
    return copier.out()->Make(Op::kMul, {x, x});
  });
  ASSERT_TRUE(copy.ok()) << copy.status();
  const UOp sum = copy->root();
  ASSERT_TRUE(sum.is(Op::kAdd));
  EXPECT_TRUE(sum.src(0).is(Op::kMul));
  EXPECT_TRUE(sum.src(1).is(Op::kExp2));
  EXPECT_EQ(sum.src(1).src(0), sum.src(0));
}

TEST(CopierTest, MakeLikeTakesArgumentsFromAnyGraph) {
  Graph from, to;
  const int64_t dims[] = {2, 3}, order[] = {1, 0};
  const UOp view = from.Make(Op::kPermute, {from.Param(0, DType::kInt32, dims)}, order);
  for (Graph* g : {&from, &to}) {
    const int64_t other[] = {5, 7};
    const UOp made = MakeLike(g, view, std::array{g->Param(1, DType::kInt32, other)});
    ASSERT_TRUE(made.valid()) << g->status();
    EXPECT_EQ(ToString(made.shape()), "[7, 5]");
  }
}

TEST(CopierTest, ErrorsEndTheCopy) {
  const FrozenGraph graph = SomeGraph();
  Budget budget;
  int nodes = 0;
  Copier own(graph);
  const auto given = own.Run(&budget, [&](UOp u) -> absl::StatusOr<UOp> {
    ++nodes;
    if (u.is(Op::kNeg)) return absl::NotFoundError("no such thing");
    return own.Same(u);
  });
  EXPECT_EQ(given.status().message(), "no such thing");
  EXPECT_EQ(nodes, 2);

  Copier bad(graph);
  const auto of_graph = bad.Run(&budget, [&](UOp u) {
    return u.is(Op::kNeg) ? bad.out()->Make(Op::kReshape, {bad.Made(u.src(0))}) : bad.Same(u);
  });
  EXPECT_FALSE(of_graph.ok());
  EXPECT_EQ(of_graph.status(), bad.out()->status());
}

TEST(CopierTest, SpendsTheBudget) {
  const FrozenGraph graph = SomeGraph();
  Budget::Limits limits;
  limits.steps = 3;
  Budget budget(limits);
  Copier copier(graph);
  const auto copy = copier.Run(&budget, [&](UOp u) { return copier.Same(u); });
  EXPECT_EQ(copy.status().code(), absl::StatusCode::kResourceExhausted) << copy.status();
}

}  // namespace
}  // namespace telegrad
