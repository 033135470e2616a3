// Into how many parts reductions are cut.
#include "engine/schedule/split_reduce.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace telegrad {
namespace {

// The extents of all reductions in the graph that sums a value of this shape, which is one number
// everywhere, along its last `axes` axes.
std::vector<int64_t> Extents(const Shape& shape, size_t axes, bool fixed = false) {
  Graph g;
  UOp x = g.Param(0, DType::kFloat32, Shape{1});
  x = g.Make(Op::kReshape, {x}, std::vector<int64_t>(shape.size(), 1));
  x = g.Make(Op::kExpand, {x}, std::vector<int64_t>(shape.begin(), shape.end()));
  std::vector<int64_t> arg{static_cast<int64_t>(ReduceKind::kAdd)};
  for (size_t a = shape.size() - axes; a < shape.size(); ++a) {
    arg.push_back(static_cast<int64_t>(a));
  }
  const UOp sum = g.Make(Op::kReduce, {x}, arg);
  const UOp out = g.Param(1, DType::kFloat32, sum.shape());
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})}));
  Budget budget;
  const auto split =
      SplitReductions(graph, CostsOf(CostRow::kGeneral).schedule.split, fixed, &budget);
  EXPECT_TRUE(split.ok()) << split.status();
  std::vector<int64_t> extents;
  for (const uint32_t id : PostOrder(split->root())) {
    const UOp u = split->graph->at(id);
    if (!u.is(Op::kReduce)) continue;
    int64_t n = 1;
    for (const int64_t axis : u.reduced_axes()) n *= u.src(0).shape()[static_cast<size_t>(axis)];
    extents.push_back(n);
  }
  return extents;
}

using Lengths = std::vector<int64_t>;

TEST(SplitReductions, SmallOnesStay) {
  EXPECT_EQ(Extents({1 << 16}, 1), Lengths{1 << 16});
  EXPECT_EQ(Extents({1 << 8, 1 << 20}, 1), Lengths{1 << 20});
}

TEST(SplitReductions, ThreadsGetPartsOfLargeOnes) {
  EXPECT_EQ(Extents({1 << 20}, 1), (Lengths{1 << 14, 64}));
}

// Each part takes milliseconds, so that launches are short and a client may cancel between them.
TEST(SplitReductions, NoPartOfAHugeOneIsLong) {
  EXPECT_EQ(Extents({int64_t{1} << 30}, 1), (Lengths{1 << 22, 256}));
  EXPECT_EQ(Extents({1 << 15, 1 << 15}, 2), (Lengths{1 << 22, 256}));
  EXPECT_EQ(Extents({64, int64_t{1} << 26}, 1), (Lengths{1 << 22, 16}));
  EXPECT_EQ(Extents({int64_t{1} << 40}, 1), (Lengths{1 << 23, 1 << 17}));
}

// A row is summed in the same parts whether it is the only one or one of many.
TEST(SplitReductions, FixedPartsFollowFromTheLengthAlone) {
  EXPECT_EQ(Extents({1 << 20}, 1, true), (Lengths{1 << 14, 64}));
  EXPECT_EQ(Extents({8, 1 << 20}, 1, true), (Lengths{1 << 14, 64}));
  EXPECT_EQ(Extents({64, 1 << 20}, 1, true), (Lengths{1 << 14, 64}));
  EXPECT_EQ(Extents({15, 1 << 16}, 1, true), Lengths{1 << 16});
  EXPECT_EQ(Extents({64, int64_t{1} << 30}, 1, true), (Lengths{1 << 22, 256}));
}

}  // namespace
}  // namespace telegrad
