// A ReLU and the mask of its gradient.
#include "engine/schedule/sign_masks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/ir/text.h"
#include "engine/reference/tensor_eval.h"
#include "engine/schedule/legalize.h"
#include "engine/schedule/schedule.h"
#include "tests/conformance/run_lowered.h"

namespace telegrad {
namespace {

using testing::Slots;

// What becomes of max(x, 0) in slot 0, and of what a mask of x makes of slot 2 in slot 1; x is in
// slot 3, or a product of the matrices 3 and 4.
struct Relu {
  explicit Relu(bool by_max, DType dtype = DType::kFloat32, int64_t n = 16) {
    const Shape dims{n, n};
    const UOp a = g.Param(3, dtype, dims), b = g.Param(4, dtype, dims),
              dy = g.Param(2, dtype, dims);
    const auto viewed = [&](UOp x, const Shape& shape, const Shape& all) {
      return g.Make(Op::kExpand, {g.Make(Op::kReshape, {x}, shape)}, all);
    };
    const UOp product =
        g.Make(Op::kMul, {viewed(a, {n, n, 1}, {n, n, n}), viewed(b, {1, n, n}, {n, n, n})});
    const int64_t folded[] = {static_cast<int64_t>(ReduceKind::kAdd), 1};
    x = g.Make(Op::kReshape, {g.Make(Op::kReduce, {product}, std::span(folded))}, dims);
    const UOp zero = g.ConstWord(dtype, 0);
    mask = g.Make(Op::kCmpLt, {zero, x});
    relu = by_max ? g.Make(Op::kMax, {x, zero}) : g.Make(Op::kWhere, {mask, x, zero});
    const UOp gradient = g.Make(Op::kWhere, {mask, dy, zero});
    sink = g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(0, dtype, dims), relu}),
                              g.Make(Op::kStore, {g.Param(1, dtype, dims), gradient})});
  }
  Graph g;
  UOp x, mask, relu, sink;
};

FrozenGraph Changed(UOp sink) {
  Budget budget;
  const auto legal = Legalize(sink, {}, &budget);
  EXPECT_TRUE(legal.ok()) << legal.status();
  const auto out = MasksOfResults(*legal, &budget);
  EXPECT_TRUE(out.ok()) << out.status();
  return *out;
}

int Users(UOp root, Op of) {
  int users = 0;
  for (const uint32_t id : PostOrder(root)) {
    for (const UOp u = root.graph()->at(id); const uint32_t s : u.src_ids()) {
      const Graph& g = *root.graph();
      users += g.op(s) == Op::kReshape && g.op(g.src(s)[0]) == Op::kReduce && u.is(of);
    }
  }
  return users;
}

TEST(SignMasks, TheGradientComparesTheResult) {
  for (const bool by_max : {false, true}) {
    const Relu relu(by_max);
    ASSERT_TRUE(relu.g.status().ok()) << relu.g.status();
    const FrozenGraph made = Changed(relu.sink);
    // Of x itself there is only the comparison that the WHERE is made of.
    EXPECT_EQ(Users(made.root(), Op::kCmpLt), by_max ? 0 : 1) << Print(made.root());
    Budget budget;
    const auto schedule = ScheduleGraph(relu.sink, &budget);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(schedule->arena_bytes, 0) << "keeps x for the mask";
  }
}

TEST(SignMasks, AnotherConstantStays) {
  Graph g;
  const Shape dims{8};
  const UOp x = g.Param(0, DType::kFloat32, dims), one = g.ConstFloat(DType::kFloat32, 1);
  const UOp mask = g.Make(Op::kCmpLt, {one, x}), clipped = g.Make(Op::kMax, {x, one});
  const UOp sink =
      g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(1, DType::kFloat32, dims), clipped}),
                         g.Make(Op::kStore, {g.Param(2, DType::kBool, dims), mask})});
  Budget budget;
  const auto legal = Legalize(sink, {}, &budget);
  ASSERT_TRUE(legal.ok()) << legal.status();
  EXPECT_EQ(Print(Changed(sink).root()), Print(legal->root()));
}

TEST(SignMasks, EveryFloatHasTheSameMask) {
  const float edges[] = {0.0f,    -0.0f,    1.0f,      -1.0f, 1e-45f,
                         -1e-45f, INFINITY, -INFINITY, NAN,   1e-38f};
  constexpr int64_t kCount = std::size(edges);
  for (const bool by_max : {false, true}) {
    Graph g;
    const UOp x = g.Param(2, DType::kFloat32, Shape{kCount}),
              zero = g.ConstWord(DType::kFloat32, 0);
    const UOp mask = g.Make(Op::kCmpLt, {zero, x});
    const UOp relu = by_max ? g.Make(Op::kMax, {zero, x}) : g.Make(Op::kWhere, {mask, x, zero});
    const UOp sink =
        g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(0, DType::kFloat32, Shape{kCount}), relu}),
                           g.Make(Op::kStore, {g.Param(1, DType::kBool, Shape{kCount}), mask})});
    Slots slots{std::vector<uint8_t>(kCount * 4), std::vector<uint8_t>(kCount),
                std::vector<uint8_t>(kCount * 4)};
    std::memcpy(slots[2].data(), edges, sizeof(edges));
    Slots want = slots, got = slots;
    Budget budget;
    ASSERT_TRUE(reference::Evaluate(sink, want, &budget).ok());
    const FrozenGraph made = Changed(sink);
    ASSERT_NE(Print(made.root()), Print(sink));
    ASSERT_TRUE(reference::Evaluate(made.root(), got, &budget).ok());
    EXPECT_EQ(want[1], got[1]);
    EXPECT_EQ(testing::Difference(DType::kFloat32, true, want[0], got[0]), "");
  }
}

}  // namespace
}  // namespace telegrad
