// A plan whose sizes depend on its inputs becomes the one that would have been written for them.
#include "engine/frontend/io/plan_sizes.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/base/strings.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

constexpr int64_t kMost = 8;

UOp Variable(Graph& g, int64_t id, int64_t min = 1, int64_t max = kMost, int64_t multiple = 1) {
  return g.Make(Op::kVar, DType::kInt64, {}, {id, min, max, multiple});
}

// Slot `number` of [rows, 2]; `rows` computed from variables, at most `most`.
UOp Rows(Graph& g, int64_t number, UOp rows, int64_t most) {
  const Shape flat{most * 2};
  const UOp elements = g.Make(Op::kMul, {rows, g.Index(2)});
  const UOp part = g.Make(Op::kShrink, {g.Param(number, DType::kFloat32, flat), elements},
                          std::vector<int64_t>{0, -2});
  return g.Make(Op::kReshape, {part, rows}, std::vector<int64_t>{-2, 2});
}

UOp FixedRows(Graph& g, int64_t number, int64_t rows) {
  const Shape flat{rows * 2};
  return g.Make(Op::kReshape, {g.Param(number, DType::kFloat32, flat)},
                std::vector<int64_t>{rows, 2});
}

Plan Planned(Graph& g, const std::vector<UOp>& effects, std::vector<Slot> slots,
             std::vector<PlanVariable> variables) {
  const UOp root = g.Make(Op::kSink, DType::kVoid, effects);
  EXPECT_TRUE(g.status().ok()) << g.status();
  return {.graph = Freeze(root), .slots = std::move(slots), .variables = std::move(variables)};
}

Slot Named(const std::string& name, int64_t elements, SlotRole role) {
  Slot slot;
  slot.name = name;
  slot.dtype = DType::kFloat32;
  slot.shape = {elements};
  slot.role = role;
  return slot;
}
std::vector<Slot> XAndY() {
  return {Named("x", 2 * kMost, SlotRole::kInput), Named("y", 2 * (kMost + 1), SlotRole::kOutput)};
}
std::vector<PlanVariable> N(int64_t min = 1, int64_t multiple = 1) {
  return {{.name = "n", .id = 0, .min = min, .max = kMost, .multiple = multiple}};
}

// y [n + 1, 2] = x [n, 2] with a row of zeros before it.
Plan Padded(int64_t min = 1, int64_t multiple = 1) {
  Graph g;
  const UOp n = Variable(g, 0, min, kMost, multiple);
  const UOp more = g.Make(Op::kAdd, {n, g.Index(1)});
  const UOp pad = g.Make(Op::kPad, {Rows(g, 0, n, kMost), more}, std::vector<int64_t>{1, -2, 0, 2});
  const UOp store = g.Make(Op::kStore, {Rows(g, 1, more, kMost + 1), pad});
  return Planned(g, {store}, XAndY(), N(min, multiple));
}

TEST(PlanSizes, SaysWhichSizesAreOpen) {
  const Plan plan = Padded();
  const auto shapes = OpenShapes(plan);
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_EQ(*shapes, (std::vector<Shape>{{kOpenDim, 2}, {kOpenDim, 2}}));
  const auto variables = DimVariables(plan);
  ASSERT_TRUE(variables.ok());
  EXPECT_EQ(*variables, (std::vector<std::vector<int>>{{0, -1}, {-1, -1}}))
      << "n + 1 is not a variable";
}

TEST(PlanSizes, BecomesThePlanForTheShapes) {
  for (const int64_t n : {int64_t{1}, int64_t{5}, kMost}) {
    Budget budget;
    const auto plan = PlanForShapes(Padded(), std::vector<Shape>{{n, 2}, {}}, &budget);
    ASSERT_TRUE(plan.ok()) << plan.status();
    Graph g;
    const UOp pad = g.Make(Op::kPad, {FixedRows(g, 0, n)}, std::vector<int64_t>{1, n + 1, 0, 2});
    const UOp store = g.Make(Op::kStore, {FixedRows(g, 1, n + 1), pad});
    EXPECT_EQ(GraphBytes(plan->graph.root()), GraphBytes(g.Make(Op::kSink, {store})));
    EXPECT_EQ(plan->slots[0].shape, (Shape{n, 2}));
    EXPECT_EQ(plan->slots[1].shape, (Shape{n + 1, 2}));
    EXPECT_TRUE(plan->variables.empty());
  }
}

void Expect(const absl::Status& status, absl::StatusCode code, const std::string& part) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_NE(status.message().find(part), std::string::npos) << status;
}

TEST(PlanSizes, RefusesShapesThatDoNotFit) {
  const auto refused = [](const Plan& plan, const Shape& x, const std::string& part) {
    Budget budget;
    Expect(PlanForShapes(plan, std::vector<Shape>{x, {}}, &budget).status(),
           absl::StatusCode::kInvalidArgument, part);
  };
  refused(Padded(), {9, 2}, "its dimension 0 (n) is from 1 to 8");
  refused(Padded(), {0, 2}, "from 1 to 8");
  refused(Padded(), {-1, 2}, "from 1 to 8");
  refused(Padded(2, 2), {3, 2}, "from 2 to 8, a multiple of 2");
  refused(Padded(), {4, 3}, "input 'x' has shape [4, 3], expected [4, 2]");
  refused(Padded(), {4}, "expected 2 dimensions");
}

// z = x + y, all of [n, 2].
Plan Sum(const std::function<UOp(Graph&, UOp)>& other) {
  Graph g;
  const UOp n = Variable(g, 0);
  const UOp sum = g.Make(Op::kAdd, {Rows(g, 0, n, kMost), other(g, n)});
  const UOp store = g.Make(Op::kStore, {Rows(g, 2, n, kMost), sum});
  std::vector<Slot> slots = XAndY();
  slots[1].role = SlotRole::kInput;
  slots.push_back(Named("z", 2 * kMost, SlotRole::kOutput));
  return Planned(g, {store}, std::move(slots), N());
}

TEST(PlanSizes, InputsAgree) {
  const Plan plan = Sum([](Graph& g, UOp n) { return Rows(g, 1, n, kMost); });
  Budget budget;
  EXPECT_TRUE(PlanForShapes(plan, std::vector<Shape>{{3, 2}, {3, 2}, {}}, &budget).ok());
  Expect(PlanForShapes(plan, std::vector<Shape>{{3, 2}, {4, 2}, {}}, &budget).status(),
         absl::StatusCode::kInvalidArgument, "n is 3 in another input");
}

TEST(PlanSizes, RefusesGraphsOfAnotherForm) {
  const Plan twice = Sum([](Graph& g, UOp n) {
    const UOp part = Rows(g, 0, n, kMost).src(0);
    const UOp swapped = g.Make(Op::kReshape, {part, n}, std::vector<int64_t>{2, -2});
    return g.Make(Op::kPermute, {swapped}, std::vector<int64_t>{1, 0});
  });
  Expect(OpenShapes(twice).status(), absl::StatusCode::kInvalidArgument, "has two shapes");
  const Plan whole = Sum([](Graph& g, UOp n) {
    const UOp param = Rows(g, 0, n, kMost).src(0).src(0);
    const UOp first = g.Make(Op::kShrink, {param}, std::vector<int64_t>{0, 1});
    return g.Make(Op::kExpand, {g.Make(Op::kReshape, {first}, std::vector<int64_t>{1, 1}), n},
                  std::vector<int64_t>{-2, 2});
  });
  Expect(OpenShapes(whole).status(), absl::StatusCode::kInvalidArgument, "is used without it");
}

TEST(PlanSizes, EveryVariableIsADimOfAnInput) {
  Graph g;
  const UOp n = Variable(g, 0);
  const Shape one{1};
  const UOp value = g.Make(Op::kCast, DType::kFloat32, {n});
  const UOp store =
      g.Make(Op::kStore, {g.Param(1, DType::kFloat32, one),
                          g.Make(Op::kAdd, {g.Param(0, DType::kFloat32, one), value})});
  const Plan plan = Planned(g, {store}, XAndY(), N());
  Expect(OpenShapes(plan).status(), absl::StatusCode::kUnimplemented,
         "variable n is not a dimension of an input");
}

}  // namespace
}  // namespace telegrad
