// A range is the sum of its parts: every iteration of the kernel is one of theirs.
#include "engine/lowering/moves/split.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/lowering/ranges.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"

namespace telegrad {
namespace {

constexpr const RuleTable* kRules[] = {&kAlgebra, &kDivMod};

// The values that `u` has where the condition `inside` holds, one for each combination of the
// iterations of `ranges`; an invalid condition always holds.
std::vector<int64_t> ValuesOf(Rewriter& b, UOp u, UOp inside, const std::vector<UOp>& ranges) {
  int64_t combinations = 1;
  for (UOp range : ranges) combinations *= SizeOf(range);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < combinations; ++i) {
    Replacements at;
    int64_t rest = i;
    for (UOp range : ranges) {
      at[range.id()] = {b.graph()->Index(rest % SizeOf(range)), {}};
      rest /= SizeOf(range);
    }
    if (inside.valid() && Substitute(b, inside, at).const_word() == 0) continue;
    values.push_back(Substitute(b, u, at).const_word());
  }
  return values;
}

// The moves of one range, from the outermost part to the lanes.
std::vector<RangeMove> RandomParts(std::mt19937_64& rng, UOp range, bool workgroups) {
  std::vector<RangeMove> moves;
  for (uint64_t n = rng() % 3; n > 0; --n) {
    moves.push_back({Move::Kind::kUpcast, range, static_cast<int64_t>(2 + rng() % 4)});
  }
  if (workgroups && rng() % 2 == 0) {
    moves.push_back({Move::Kind::kLocal, range, static_cast<int64_t>(2 + rng() % 7)});
  }
  if (rng() % 2 == 0) moves.push_back({Move::Kind::kVectorize, range, 4});
  if (workgroups && rng() % 2 == 0) moves.push_back({Move::Kind::kGroup, range});
  if (!workgroups && rng() % 2 == 0) moves.push_back({Move::Kind::kBlock, range, 2});
  return moves;
}

TEST(Split, EveryIterationIsOneOfItsParts) {
  std::mt19937_64 rng(11);
  for (int round = 0; round < 400; ++round) {
    const bool workgroups = round % 2 == 0, once = rng() % 2 == 0;
    const Target target = workgroups ? *NvidiaTarget(8, 0, 4, 163840) : Target();
    const Padding& padding = PaddingOf(target);
    Graph g;
    Budget budget;
    Rewriter b(&g, kRules, &budget);
    const auto size = static_cast<int64_t>(2 + rng() % 60);
    const UOp range = g.Range(0, AxisType::kLoop, g.Index(size));
    const std::vector<RangeMove> moves = RandomParts(rng, range, workgroups);
    if (moves.empty()) continue;
    std::string text = StrCat("seed 11, round ", round, ", size ", size, ":");
    for (const RangeMove& m : moves) StrAppend(&text, " ", RowOf(m.kind).name, " ", m.amount);
    SCOPED_TRACE(text);

    std::vector<SplitRange> splits = PlanSplits(moves);
    ASSERT_EQ(splits.size(), 1u);
    SplitRange& s = splits[0];
    int64_t next_id = 1;
    const auto parallel = MakeParallel(b, splits, moves, target, &next_id);
    ASSERT_TRUE(parallel.ok()) << parallel.status();
    ASSERT_TRUE(MakeParts(b, *parallel, padding, once, &next_id, &s).ok());
    std::vector<UOp> ranges = s.with.ranges;  // workgroups are not closed with the others
    if (s.outer.is(Op::kRange) && std::ranges::find(ranges, s.outer) == ranges.end()) {
      ranges.push_back(s.outer);
    }
    std::vector<int64_t> done(static_cast<size_t>(size), 0);
    for (const int64_t value : ValuesOf(b, s.with.value, s.inside_with, ranges)) {
      ASSERT_TRUE(value >= 0 && value < size) << value;
      ++done[static_cast<size_t>(value)];
    }
    EXPECT_EQ(std::ranges::count(done, 0), 0);
    if (once || !padding.moves_back) {
      EXPECT_EQ(std::ranges::count(done, 1), size);
    }
    ASSERT_TRUE(g.status().ok()) << g.status();
  }
}

TEST(Split, WhatIsReducedIsNeverMovedBack) {
  Graph g;
  Budget budget;
  Rewriter b(&g, kRules, &budget);
  const UOp range = g.Range(0, AxisType::kReduce, g.Index(10));
  int64_t next_id = 1;
  std::vector<SplitRange> splits = PlanSplits({{Move::Kind::kUpcast, range, 4}});
  EXPECT_FALSE(MakeParts(b, {}, kPaddingOfLoops, false, &next_id, &splits[0]).ok());
  splits = PlanSplits({{Move::Kind::kUpcast, range, 4}});
  ASSERT_TRUE(MakeParts(b, {}, kPaddingOfGates, false, &next_id, &splits[0]).ok());
  EXPECT_TRUE(splits[0].inside_with.valid());
}

}  // namespace
}  // namespace telegrad
