// One form of what clients spell in several ways around scores: each way becomes it, and a graph
// without scores stays what it is.
#include "engine/schedule/score_form.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/ir/text.h"

namespace telegrad {
namespace {

// Scores %5 of 64 by 64, then `lines`, of which %9 [64, 64, 1] or a part of it is stored.
std::string WithScores(const std::string& lines, const std::string& shape = "[64, 64, 1]",
                       const std::string& dtype = "f32") {
  return R"(%0 = param f32 [64, 1, 16] slot=0
%1 = param f32 [1, 64, 16] slot=1
%2 = expand f32 [64, 64, 16] %0
%3 = expand f32 [64, 64, 16] %1
%4 = mul f32 [64, 64, 16] %2 %3
%5 = reduce f32 [64, 64, 1] %4 kind=add axes=[2]
%6 = exp2 f32 [64, 64, 1] %5
%7 = param f32 [64, 64, 1] slot=3
%8 = store %7 %6
)" + lines +
         "\n%50 = param " + dtype + " " + shape +
         " slot=2\n%51 = store %50 %9\n%52 = sink %8 %51\n";
}

FrozenGraph Parsed(const std::string& text) {
  auto graph = std::make_shared<Graph>();
  const absl::StatusOr<UOp> root = Parse(text, graph.get());
  EXPECT_TRUE(root.ok()) << root.status() << text;
  return {graph, root->id()};
}

std::string Form(const std::string& text) {
  Budget budget;
  const absl::StatusOr<FrozenGraph> form = SimplifyScores(Parsed(text), &budget);
  EXPECT_TRUE(form.ok()) << form.status();
  return Print(form->root());
}

TEST(ScoreForm, ConstantsHaveNoViews) {
  const std::string plain = WithScores("%10 = const f32 0.125\n%9 = mul f32 [64, 64, 1] %5 %10");
  EXPECT_EQ(Form(WithScores("%10 = const f32 0.125\n%11 = reshape f32 [1, 1, 1] %10\n"
                            "%12 = expand f32 [64, 64, 1] %11\n%9 = mul f32 [64, 64, 1] %5 %12")),
            Form(plain));
  EXPECT_EQ(Form(plain), Print(Parsed(plain).root()));
}

// A condition that is a constant keeps its view where the choices are scalars, whose shape it
// gives.
TEST(ScoreForm, AConstantThatAloneHasTheShapeKeepsIt) {
  const std::string text = WithScores(
      "%10 = iota i64 [64]\n%11 = reshape i64 [64, 1, 1] %10\n%12 = const i64 -100\n"
      "%13 = cmpne bool [64, 1, 1] %11 %12\n%14 = param f32 slot=4\n%15 = const f32 0\n"
      "%16 = where f32 [64, 1, 1] %13 %14 %15\n%17 = expand f32 [64, 64, 1] %16\n"
      "%9 = mul f32 [64, 64, 1] %6 %17");
  Budget budget;
  const absl::StatusOr<FrozenGraph> form = SimplifyScores(Parsed(text), &budget);
  ASSERT_TRUE(form.ok()) << form.status();
}

TEST(ScoreForm, ReductionsStandBeforePermutations) {
  const std::string plain = WithScores(
      "%10 = reduce f32 [64, 1, 1] %5 kind=max axes=[1]\n%9 = reshape f32 [1, 64, 1] %10",
      "[1, 64, 1]");
  EXPECT_EQ(Form(WithScores("%10 = permute f32 [64, 64, 1] %5 axes=[1, 0, 2]\n"
                            "%9 = reduce f32 [1, 64, 1] %10 kind=max axes=[0]",
                            "[1, 64, 1]")),
            Form(plain));
}

TEST(ScoreForm, WhatIsAddedIsNotNegatedBeneathAView) {
  const std::string maximum = "%10 = reduce f32 [64, 1, 1] %5 kind=max axes=[1]\n";
  const std::string plain = WithScores(maximum +
                                       "%12 = expand f32 [64, 64, 1] %10\n"
                                       "%9 = sub f32 [64, 64, 1] %5 %12");
  EXPECT_EQ(Form(WithScores(maximum + "%11 = neg f32 [64, 1, 1] %10\n"
                                      "%12 = expand f32 [64, 64, 1] %11\n"
                                      "%9 = add f32 [64, 64, 1] %5 %12")),
            Form(plain));
}

TEST(ScoreForm, WhetherSomeScoreIsVisibleIsSaidByTheMaximum) {
  const std::string none = "%10 = const f32 -inf\n";
  const std::string plain =
      WithScores(none +
                     "%11 = reduce f32 [64, 1, 1] %5 kind=max axes=[1]\n"
                     "%12 = cmpne bool [64, 1, 1] %11 %10\n%9 = cast i32 [64, 1, 1] %12",
                 "[64, 1, 1]", "i32");
  EXPECT_EQ(Form(WithScores(none + "%11 = cmpne bool [64, 64, 1] %5 %10\n"
                                   "%12 = cast i32 [64, 64, 1] %11\n"
                                   "%9 = reduce i32 [64, 1, 1] %12 kind=max axes=[1]",
                            "[64, 1, 1]", "i32")),
            Form(plain));
  // Not whether all are, nor whether some is more than another number.
  for (const auto& [number, kind] : {std::pair("-inf", "mul"), std::pair("0", "max")}) {
    const std::string other = WithScores(std::string("%10 = const f32 ") + number +
                                             "\n%11 = cmpne bool [64, 64, 1] %5 %10\n"
                                             "%12 = cast i32 [64, 64, 1] %11\n"
                                             "%9 = reduce i32 [64, 1, 1] %12 kind=" +
                                             kind + " axes=[1]",
                                         "[64, 1, 1]", "i32");
    EXPECT_EQ(Form(other), Print(Parsed(other).root())) << number << ' ' << kind;
  }
}

// Layers that share a mask stay equal: see IsCommuted in the source.
TEST(ScoreForm, SumsOfFloatsKeepTheOrderOfTheirValues) {
  const std::string mask = "%10 = param f32 [64, 64, 1] slot=4\n";
  for (const char* sum : {"%5 %10", "%10 %5"}) {
    const std::string text = WithScores(mask + "%9 = add f32 [64, 64, 1] " + sum);
    EXPECT_EQ(Form(text), Print(Parsed(text).root()));
  }
}

TEST(ScoreForm, OfAGraphWithoutScoresIsTheGraph) {
  const FrozenGraph graph = Parsed(R"(%0 = param f32 [64, 64] slot=0
%1 = permute f32 [64, 64] %0 axes=[1, 0]
%2 = reduce f32 [1, 64] %1 kind=max axes=[0]
%3 = param f32 [1, 64] slot=1
%4 = store %3 %2
%5 = sink %4
)");
  Budget budget;
  const absl::StatusOr<FrozenGraph> form = SimplifyScores(graph, &budget);
  ASSERT_TRUE(form.ok()) << form.status();
  EXPECT_EQ(form->graph, graph.graph);
  EXPECT_EQ(form->root(), graph.root());
}

}  // namespace
}  // namespace telegrad
