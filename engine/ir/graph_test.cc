// Graphs: equal nodes are one, errors are kept, the post-order and the content hash do not
// depend on the order of creation, freezing keeps what the root needs, and deep graphs need no
// recursion.
#include "engine/ir/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "engine/base/strings.h"
#include "engine/ir/content_hash.h"
#include "engine/ir/scalar.h"
#include "engine/ir/text.h"

namespace telegrad {
namespace {

constexpr DType kF32 = DType::kFloat32;

TEST(Graph, EqualStructureIsEqualId) {
  Graph g;
  const Shape shape{2, 3};
  const UOp a = g.Param(0, kF32, shape);
  EXPECT_EQ(a, g.Param(0, kF32, shape));
  EXPECT_NE(a, g.Param(1, kF32, shape));
  EXPECT_NE(a, g.Param(0, DType::kInt32, shape));
  EXPECT_NE(a, g.Param(0, kF32, Shape{3, 2}));
  const UOp b = g.Param(1, kF32, shape);
  EXPECT_EQ(g.Make(Op::kAdd, {a, b}), g.Make(Op::kAdd, {a, b}));
  EXPECT_NE(g.Make(Op::kAdd, {a, b}), g.Make(Op::kAdd, {b, a}));
  // A derived dtype is no part of the identity, whatever the caller says.
  EXPECT_EQ(g.Make(Op::kAdd, DType::kInt8, {a, b}), g.Make(Op::kAdd, {a, b}));
  EXPECT_TRUE(g.status().ok());
}

TEST(Graph, ConstantsAreCanonical) {
  Graph g;
  EXPECT_EQ(g.Const(DType::kInt8, 255), g.Const(DType::kInt8, -1));
  EXPECT_EQ(g.ConstFloat(kF32, 0.1), g.ConstFloat(kF32, static_cast<double>(0.1f)));
  EXPECT_NE(g.ConstFloat(kF32, 0.0), g.ConstFloat(kF32, -0.0));
  EXPECT_NE(g.Const(DType::kInt32, 1), g.Const(DType::kInt64, 1));
  // Every NaN is the same one, also by way of Make.
  const UOp nan = g.ConstFloat(DType::kFloat64, std::numeric_limits<double>::quiet_NaN());
  for (uint64_t bits : {0x7ff8000000000001ull, 0xfff8000000000000ull, 0x7ff0000000000001ull}) {
    EXPECT_EQ(g.Make(Op::kConst, DType::kFloat64, {}, {static_cast<int64_t>(bits)}), nan);
    EXPECT_EQ(g.ConstWord(DType::kFloat64, static_cast<int64_t>(bits)), nan);
  }
  EXPECT_TRUE(g.status().ok());
}

TEST(Graph, ErrorsAreStickyAndTheFirstWins) {
  Graph g;
  const UOp x = g.Const(kF32, 1);
  const UOp bad = g.Make(Op::kAnd, {x, x});
  EXPECT_FALSE(bad.valid());
  EXPECT_FALSE(g.Make(Op::kNeg, {bad}).valid());
  EXPECT_THAT(std::string(g.status().message()), ::testing::StartsWith("and: "));
  EXPECT_EQ(g.TakeStatus().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(g.status().ok());
  EXPECT_TRUE(g.Make(Op::kNeg, {x}).valid());
}

TEST(Graph, RefusesSourcesOfAnotherGraph) {
  Graph g, other;
  EXPECT_FALSE(g.Make(Op::kNeg, {other.Const(kF32, 1)}).valid());
  EXPECT_EQ(g.status().code(), absl::StatusCode::kInternal);
}

TEST(Graph, InternsManyNodes) {
  Graph g;
  std::vector<UOp> made;
  for (int64_t i = 0; i < 100'000; ++i) made.push_back(g.Index(i << 40));
  EXPECT_EQ(g.size(), 100'000u);
  for (int64_t i = 0; i < 100'000; ++i) ASSERT_EQ(g.Index(i << 40), made[i]);
  EXPECT_EQ(g.size(), 100'000u);
}

TEST(Graph, ArgumentsMayPointIntoTheGraph) {
  Graph g;
  UOp p = g.Param(0, kF32, Shape{1, 2, 3, 4, 5, 6, 7});
  // Each Make reads the argument of a node of the same pool, which may grow meanwhile.
  for (int i = 0; i < 100; ++i) {
    p = g.Make(Op::kReshape, {p}, i % 2 == 0 ? Shape{7, 6, 5, 4, 3, 2, 1} : Shape{5040});
    const UOp again = g.Make(Op::kReshape, {p}, p.arg());
    ASSERT_TRUE(again.valid());
    EXPECT_TRUE(std::ranges::equal(again.arg(), p.arg()));
    p = again;
  }
}

// A new shape moves the pool that the words lie in: a reshape of each to the next one's.
TEST(Graph, ArgumentsMayBeAShapeOfTheGraph) {
  Graph g;
  for (int64_t n = 1; n < 5000; ++n) {
    const int64_t dims[] = {n, 2}, flat[] = {2 * n};
    const UOp to = g.Param(2 * n, DType::kFloat32, dims);
    const UOp x = g.Param(2 * n + 1, DType::kFloat32, flat);
    const UOp reshaped = g.Make(Op::kReshape, {x}, to.shape());
    ASSERT_TRUE(reshaped.valid()) << g.status();
    ASSERT_TRUE(std::ranges::equal(reshaped.arg(), dims)) << n;
    ASSERT_TRUE(std::ranges::equal(reshaped.shape(), dims)) << n;
  }
}

TEST(Graph, PostOrderDependsOnStructureAlone) {
  Graph g;
  const UOp a = g.Param(0, kF32, {}), b = g.Param(1, kF32, {});
  const UOp sum = g.Make(Op::kAdd, {b, a});
  const UOp product = g.Make(Op::kMul, {sum, b});
  EXPECT_THAT(PostOrder(product), ::testing::ElementsAre(b.id(), a.id(), sum.id(), product.id()));
}

TEST(Graph, FreezeKeepsOnlyWhatTheRootNeeds) {
  Graph g;
  const UOp a = g.Param(0, kF32, {}), b = g.Param(1, kF32, {});
  g.Make(Op::kSub, {a, b});
  const UOp root = g.Make(Op::kMul, {b, a});
  const FrozenGraph frozen = Freeze(root);
  EXPECT_EQ(frozen.graph->size(), 3u);
  EXPECT_EQ(Print(frozen.root()), Print(root));
}

TEST(Graph, NoRecursionOnDeepGraphs) {
  Graph g;
  UOp u = g.Param(0, kF32, {});
  for (int i = 0; i < 1'000'000; ++i) u = g.Make(Op::kNeg, {u});
  EXPECT_EQ(PostOrder(u).size(), 1'000'001u);
  EXPECT_EQ(Freeze(u).graph->size(), 1'000'001u);
  EXPECT_EQ(ContentHash(u), ContentHash(Freeze(u).root()));
}

// The same random expression built in two orders, with unrelated nodes between, hashes the same;
// any change to it hashes differently.
TEST(ContentHash, IsIndependentOfCreationOrder) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(StrCat("seed ", seed));
  std::mt19937 random(seed);
  constexpr Op kOps[] = {Op::kAdd, Op::kMul, Op::kMax, Op::kSub};
  for (int round = 0; round < 200; ++round) {
    // Layers of nodes that take sources from the layer below: any order within a layer is possible.
    constexpr int kLayers = 5, kWidth = 6;
    struct Node {
      Op op;
      int x, y;
    };
    std::vector<std::vector<Node>> layers(kLayers, std::vector<Node>(kWidth));
    for (auto& layer : layers) {
      for (Node& n : layer) {
        n = {kOps[random() % 4], static_cast<int>(random() % kWidth),
             static_cast<int>(random() % kWidth)};
      }
    }
    const auto build = [&](Graph& g, bool shuffled, Op last) {
      std::vector<int> order(kWidth);
      std::vector<UOp> below(kWidth), above(kWidth);
      for (int i = 0; i < kWidth; ++i) order[i] = i;
      if (shuffled) std::ranges::shuffle(order, random);
      for (int i : order) below[i] = g.Param(i, kF32, Shape{4});
      for (const auto& layer : layers) {
        if (shuffled) std::ranges::shuffle(order, random);
        for (int i : order) {
          if (shuffled) g.Make(Op::kNeg, {below[i]});
          above[i] = g.Make(layer[i].op, {below[layer[i].x], below[layer[i].y]});
        }
        std::swap(above, below);
      }
      return g.Make(last, {below[0], below[1]});
    };
    Graph plain, shuffled, other;
    const UOp a = build(plain, false, Op::kFDiv), b = build(shuffled, true, Op::kFDiv);
    ASSERT_EQ(CanonicalBytes(a), CanonicalBytes(b));
    ASSERT_EQ(ContentHash(a), ContentHash(b));
    ASSERT_EQ(Print(a), Print(b));
    ASSERT_NE(ContentHash(a), ContentHash(build(other, true, Op::kCmpLt)));
  }
}

// The hash is the same on every machine and for ever: this one is written down. It may change only
// together with the wire contract.
TEST(ContentHash, IsStable) {
  Graph g;
  const UOp u = g.Make(Op::kReshape, {g.Param(0, kF32, Shape{2, 3})}, Shape{6});
  // Nodes; param: op, dtype, no sources, 4 words; reshape: op, dtype, source 0, 1 word.
  const auto u32 = [](uint32_t v) { return std::string(reinterpret_cast<const char*>(&v), 4); };
  const auto u64 = [](uint64_t v) { return std::string(reinterpret_cast<const char*>(&v), 8); };
  EXPECT_EQ(CanonicalBytes(u), u32(2) + u32(2) + u32(12) + u32(0) + u32(4) + u64(0) + u64(0) +
                                   u64(2) + u64(3) + u32(10) + u32(12) + u32(1) + u32(0) + u32(1) +
                                   u64(6));
  EXPECT_EQ(ContentHash(u).Hex(),
            "9e35a9db4f7eee10dea449de16a9d3e2c9d826277a331761f86b25ac0b81dc7a");
}

}  // namespace
}  // namespace telegrad
