// The cost by which lists are ranked where a target has workgroups: of lists for the same kernel
// the one that shares work and memory better costs less, and the one that lowering chooses costs
// least in simple kernels.
#include "engine/lowering/choose/group_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "engine/ir/product_tile.h"
#include "engine/lowering/choose/candidates.h"
#include "engine/lowering/heuristic.h"
#include "engine/lowering/test_product.h"

namespace telegrad {
namespace {

Target Gpu() { return *NvidiaTarget(8, 0, 108, 163840); }

// to[i] = f(x) in a nest of loops of these sizes, of which `reduced` is summed; the element of x is
// at `at` of the ranges.
FrozenGraph Sums(int64_t rows, int64_t columns, bool reduced, bool turned) {
  Graph g;
  const UOp i = g.Range(0, AxisType::kLoop, g.Index(rows));
  const UOp j = g.Range(1, reduced ? AxisType::kReduce : AxisType::kLoop, g.Index(columns));
  const auto at = [&](UOp x, int64_t width, UOp y) {
    return g.Make(Op::kAdd, {g.Make(Op::kMul, {x, g.Index(width)}), y});
  };
  const UOp from = g.Param(1, DType::kFloat32, Shape{rows * columns});
  const UOp place = turned ? at(j, rows, i) : at(i, columns, j);
  const UOp load = g.Make(Op::kLoad, {g.Make(Op::kIndex, {from, place})});
  const UOp value = reduced ? g.Make(Op::kReduce, DType::kVoid, {load, j},
                                     {static_cast<int64_t>(ReduceKind::kAdd)})
                            : g.Make(Op::kNeg, {load});
  const int64_t results = reduced ? rows : rows * columns;
  const UOp to = g.Param(0, DType::kFloat32, Shape{results});
  const UOp store =
      g.Make(Op::kStore, {g.Make(Op::kIndex, {to, reduced ? i : at(i, columns, j)}), value});
  std::vector<UOp> end{store, i};
  if (!reduced) end.push_back(j);
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kEnd, DType::kVoid, end, {})}));
}

double Cost(const FrozenGraph& kernel, const Target& target, std::string_view moves) {
  const auto list = ParseMoves(moves);
  EXPECT_TRUE(list.ok()) << list.status();
  return PredictCycles(kernel.root(), {}, target, *list);
}

TEST(GroupCost, NeighbouringThreadsShareASectorOfMemory) {
  const FrozenGraph kernel = Sums(1024, 1024, /*reduced=*/false, /*turned=*/false);
  const double neighbours = Cost(kernel, Gpu(), "LOCAL r1 256 axis 0, GROUP r0, GROUP r1");
  const double apart = Cost(kernel, Gpu(), "LOCAL r0 256 axis 0, GROUP r0, GROUP r1");
  EXPECT_LT(neighbours, apart);
}

TEST(GroupCost, MoreThreadsHideMoreWaiting) {
  const FrozenGraph kernel = Sums(64, 4096, /*reduced=*/true, /*turned=*/false);
  const double shared = Cost(kernel, Gpu(), "LOCAL r1 256 axis 0, GROUP r0");
  const double alone = Cost(kernel, Gpu(), "LOCAL r0 64 axis 0, GROUP r0");
  EXPECT_LT(shared, alone);
}

// Of fewer processors each has more of the workgroups.
TEST(GroupCost, FewerProcessorsTakeLonger) {
  const FrozenGraph kernel = Sums(4096, 1024, /*reduced=*/true, /*turned=*/false);
  Target half = Gpu();
  half.threads /= 2;
  const std::string_view moves = "LOCAL r1 128 axis 0, GROUP r0";
  const double per_processor = Cost(kernel, Gpu(), moves) / Gpu().threads;
  EXPECT_GT(Cost(kernel, half, moves) / half.threads, 1.8 * per_processor);
}

TEST(GroupCost, AProductTakesWhatItsTileCosts) {
  const FrozenGraph kernel = TestProduct(256, 256, 128);
  const ProductSizes sizes{256, 256, 128, 1, DType::kFloat32};
  const std::vector<ProductTile> tiles = RankTiles(sizes, Gpu());
  const std::vector<RankedMoves> ranked = RankForGroups(kernel.root(), {}, Gpu(), 100);
  ASSERT_GT(tiles.size(), 1u);
  for (const ProductTile& tile : tiles) {
    const double cost = CostOfProduct(sizes, tile, /*scattered=*/false, Gpu());
    EXPECT_TRUE(
        std::ranges::any_of(ranked, [&](const RankedMoves& one) { return one.cycles == cost; }))
        << tile.rows() << " x " << tile.columns();
  }
}

// What the rules choose is, of kernels like these, the cheapest of all ways to share them.
TEST(GroupCost, TheListOfTheRulesCostsLeast) {
  const FrozenGraph kernels[] = {TestProduct(512, 512, 256),   TestProduct(64, 64, 64),
                                 Sums(64, 4096, true, false),  Sums(4096, 256, true, false),
                                 Sums(1024, 2048, true, true), Sums(1024, 1024, false, false)};
  size_t others = 0;
  for (const Target& target : {Gpu(), OpenClTarget(20), TargetOf(TargetKind::kInvented)}) {
    for (const FrozenGraph& kernel : kernels) {
      const std::vector<RankedMoves> ranked = RankMoves(kernel.root(), {}, target, 100);
      ASSERT_FALSE(ranked.empty());
      others += ranked.size() - 1;
      for (const RankedMoves& other : ranked) {
        EXPECT_LE(ranked[0].cycles, other.cycles)
            << Print(ranked[0].moves) << " | " << Print(other.moves) << " | " << target.arch;
      }
    }
  }
  EXPECT_GT(others, 10u);
}

// The search measures what is predicted to be fast first.
TEST(GroupCost, NeighboursStandInTheirOrder) {
  const FrozenGraph kernel = TestProduct(256, 256, 128);
  const Target gpu = Gpu();
  Budget budget;
  auto space = MoveSpace::Open(kernel, gpu, {}, &budget);
  ASSERT_TRUE(space.ok()) << space.status();
  const std::vector<Candidate> first = FirstCandidates(*space, 1);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_GT(first[0].cost, 0);
  const std::vector<Candidate> next = Neighbours(*space, first[0].moves);
  ASSERT_GT(next.size(), 3u);
  EXPECT_TRUE(std::ranges::is_sorted(next, {}, &Candidate::cost));
  EXPECT_LT(next.front().cost, next.back().cost);
}

}  // namespace
}  // namespace telegrad
