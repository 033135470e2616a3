// Gradients op by op: each tensor-level op on floats has a rule or a reason, each rule is compared
// with central differences, to the second order, and orders above with what calculus says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/frontend/autograd/gradient.h"
#include "tests/frontend/cases.h"
#include "tests/frontend/run_plan.h"

namespace telegrad::testing {
namespace {

using ::testing::HasSubstr;

constexpr DType kF64 = DType::kFloat64;

HostTensor Floats(const Shape& shape) {
  return {kF64, shape, std::string(static_cast<size_t>(NumElements(shape)) * 8, '\0')};
}
HostTensor Ints(const Shape& shape, std::initializer_list<int32_t> values) {
  return HostTensor::Of<int32_t>(shape, values);
}

struct OpCase {
  Op op;
  const char* name;
  std::vector<HostTensor> in;
  std::vector<Tensor> (*run)(Builder& b, const Inputs& in);
  double low = -2, high = 2;
};

Tensor Scattered(const Inputs& in, ScatterKind kind) {
  return in[0].Scatter(in[1], in[2], kind) * in[0];  // so that second derivatives are not 0
}

// Rows 1 and 2 get several updates, 4 and -1 are no rows.
const std::vector<HostTensor> kScatterInputs = {Floats({4, 2}), Ints({3, 2}, {1, 4, 2, 1, -1, 2}),
                                                Floats({3, 2, 2})};

const OpCase kCases[] = {
    {Op::kReshape,
     "reshape",
     {Floats({2, 6})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Reshape({3, 4}).Square()}; }},
    {Op::kExpand,
     "expand",
     {Floats({3, 1})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Expand({2, 3, 4}).Square()}; }},
    {Op::kPermute,
     "permute",
     {Floats({2, 3, 2})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Permute({2, 0, 1}).Square()}; }},
    {Op::kFlip,
     "flip",
     {Floats({2, 3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Flip({0, 1}) * in[0]}; }},
    {Op::kPad,
     "pad",
     {Floats({2, 3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Pad({1, 0, 2, 1}, 3).Square()}; }},
    {Op::kShrink,
     "shrink",
     {Floats({4, 5})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Shrink({1, 3, 0, 4}).Square()}; }},
    {Op::kCat,
     "cat",
     {Floats({2, 3}), Floats({2, 1})},
     [](Builder& b, const Inputs& in) {
       const UOp parts[] = {in[0].uop(), in[1].uop(), in[0].uop()};
       const int64_t axis[] = {1};
       return Inputs{Tensor(&b, b.graph().Make(Op::kCat, DType::kVoid, parts, axis)).Square()};
     }},
    {Op::kNeg,
     "neg",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{(-in[0]).Square()}; }},
    {Op::kExp2,
     "exp2",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Exp2()}; }},
    {Op::kLog2,
     "log2",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Log2()}; },
     0.5,
     3},
    {Op::kSqrt,
     "sqrt",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Sqrt()}; },
     0.5,
     3},
    {Op::kRecip,
     "recip",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Reciprocal()}; },
     0.5,
     3},
    {Op::kSin,
     "sin",
     {Floats({5})},
     [](Builder& b, const Inputs& in) { return Inputs{b.Make(Op::kSin, DType::kVoid, {in[0]})}; }},
    {Op::kTrunc,
     "trunc",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Trunc() * in[0]}; },
     0.1,
     0.9},
    {Op::kFloor,
     "floor",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Floor() * in[0]}; },
     0.1,
     0.9},
    {Op::kAdd,
     "add",
     {Floats({2, 3}), Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{(in[0] + in[1]).Square()}; }},
    {Op::kSub,
     "sub",
     {Floats({2, 3}), Floats({})},
     [](Builder&, const Inputs& in) { return Inputs{(in[0] - in[1]).Square()}; }},
    {Op::kMul,
     "mul",
     {Floats({2, 1}), Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0] * in[1]}; }},
    {Op::kFDiv,
     "fdiv",
     {Floats({2, 3}), Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0] / in[1]}; },
     0.5,
     2},
    {Op::kMax,
     "max",
     {Floats({2, 3}), Floats({2, 3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Square().Maximum(in[1])}; }},
    {Op::kPow,
     "pow",
     {Floats({2, 3}), Floats({3})},
     [](Builder& b, const Inputs& in) {
       return Inputs{b.Make(Op::kPow, DType::kVoid, {in[0], in[1].Expand({2, 3})})};
     },
     0.3,
     3},
    {Op::kMulAcc,
     "mulacc",
     {Floats({3}), Floats({3}), Floats({3})},
     [](Builder& b, const Inputs& in) {
       return Inputs{b.Make(Op::kMulAcc, DType::kVoid, {in[0], in[1], in[2]}).Square()};
     }},
    {Op::kWhere,
     "where",
     {Floats({2, 3}), Floats({3})},
     [](Builder&, const Inputs& in) {
       return Inputs{in[0].Lt(0.5).Where(in[0].Square(), in[1].Square())};
     }},
    {Op::kReduce,
     "sum",
     {Floats({2, 3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Sum({1}).Square()}; }},
    {Op::kReduce,
     "maximum of rows",
     {Floats({3, 4})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Max({0}) * in[0].Max({1, 0})}; }},
    {Op::kReduce,
     "product",
     {Floats({2, 3, 5})},
     [](Builder& b, const Inputs& in) {
       const int64_t arg[] = {static_cast<int64_t>(ReduceKind::kMul), 0, 2};
       return Inputs{b.Make(Op::kReduce, DType::kVoid, {in[0]}, arg)};
     }},
    {Op::kReduce,
     "product of one",
     {Floats({3, 1})},
     [](Builder& b, const Inputs& in) {
       const int64_t arg[] = {static_cast<int64_t>(ReduceKind::kMul), 1};
       return Inputs{b.Make(Op::kReduce, DType::kVoid, {in[0]}, arg).Square()};
     }},
    {Op::kGather,
     "gather",
     {Floats({4, 2}), Ints({2, 2}, {1, 1, 5, 3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Gather(in[1]).Square()}; }},
    {Op::kScatter, "scatter set", kScatterInputs,
     [](Builder&, const Inputs& in) { return Inputs{Scattered(in, ScatterKind::kSet)}; }},
    {Op::kScatter, "scatter add", kScatterInputs,
     [](Builder&, const Inputs& in) { return Inputs{Scattered(in, ScatterKind::kAdd)}; }},
    {Op::kScatter, "scatter mul", kScatterInputs,
     [](Builder&, const Inputs& in) { return Inputs{Scattered(in, ScatterKind::kMul)}; }},
    {Op::kScatter, "scatter min", kScatterInputs,
     [](Builder&, const Inputs& in) { return Inputs{Scattered(in, ScatterKind::kMin)}; }},
    {Op::kScatter, "scatter max", kScatterInputs,
     [](Builder&, const Inputs& in) { return Inputs{Scattered(in, ScatterKind::kMax)}; }},
    {Op::kContiguous,
     "contiguous",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Contiguous().Square()}; }},
    {Op::kCopy,
     "copy",
     {Floats({3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].To(1).Square().To(0)}; }},
    {Op::kUnshard,
     "shard",
     {Floats({4, 3})},
     [](Builder&, const Inputs& in) { return Inputs{in[0].Shard({0, 1}, 0).Square().To(0)}; }},
};

TEST(GradientOpTest, MatchesDifferences) {
  for (const OpCase& c : kCases) {
    SCOPED_TRACE(c.name);
    CheckDifferences({.method = "", .name = c.name, .run = c.run, .low = c.low, .high = c.high},
                     c.in);
  }
}

// Ops on floats that have no derivative, or none yet; the second must fail with their name.
TEST(GradientOpTest, EveryOpHasARuleOrAReason) {
  std::set<Op> checked = {
      Op::kCast,   Op::kDetach,  Op::kBitcast,                             // TypesAndStops
      Op::kAfter,  Op::kStore,   Op::kSink,                                // AssignmentsToViews
      Op::kConst,  Op::kParam,   Op::kIota,      Op::kVar,      Op::kArg,  // nothing to go back to
      Op::kMStack, Op::kMSelect, Op::kAllReduce,                           // with kUnshard
      Op::kTuple,  Op::kCall,    Op::kLoop,      Op::kGetTuple,            // FunctionsAreRefused
  };
  for (const OpCase& c : kCases) checked.insert(c.op);
  for (int i = 0; i < kNumOps; ++i) {
    const Op op = static_cast<Op>(i);
    const OpInfo& info = Info(op);
    if (!IsAt(op, kTensorLevel)) continue;
    const bool ints = info.elements == Elements::kIntOnly || info.elements == Elements::kLogic ||
                      info.type_rule == TypeRule::kCompare || op == Op::kThreefry;
    EXPECT_TRUE(ints || checked.contains(op)) << Name(op) << " has no case";
  }
}

TEST(GradientOpTest, TypesAndStops) {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {3}, "x");
  const Tensor y =
      (x.Cast(kF64).Square() + x.Detach().Cast(kF64) * 5 + x.Bitcast(DType::kInt32).Cast(kF64) * 0)
          .Sum();
  b.Output(Gradients(y, std::span(&x, 1))[0], "g");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto got = RunPlan(*plan, {{"x", HostTensor::Of<float>({3}, {1, -2, 3})}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->at("g"), HostTensor::Of<float>({3}, {2, -4, 6}));
}

TEST(GradientOpTest, OrdersUpToFive) {
  Builder b;
  const Tensor x = b.Param(kF64, {}, "x");
  Tensor y = x * x * x * x * x;  // x^5
  for (int order = 1; order <= 5; ++order) {
    y = Gradients(y, std::span(&x, 1))[0];
    b.Output(y, "d" + std::to_string(order));
  }
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto got = RunPlan(*plan, {{"x", HostTensor::Of<double>({}, {2.0})}});
  ASSERT_TRUE(got.ok()) << got.status();
  const double want[] = {80, 160, 240, 240, 120};
  for (int order = 1; order <= 5; ++order) {
    EXPECT_EQ(got->at("d" + std::to_string(order)).AsDoubles()[0], want[order - 1]) << order;
  }
}

// Where a product has zeros no quotient gives its derivative.
// p[1:, ::-1] = x; then p[2, :] = y: what was stored over has no gradient.
TEST(GradientOpTest, AssignmentsToViews) {
  Builder b;
  const Tensor p = b.State(kF64, {3, 2}, "p", Init::Constant(1));
  const Tensor x = b.Param(kF64, {2, 2}, "x"), y = b.Param(kF64, {2}, "y");
  const Tensor rows = p.Shrink({1, 3, 0, 2}).Flip({1}), row = p.Narrow(0, 2, 1).Reshape({2});
  const Tensor first = b.Make(Op::kStore, DType::kVoid, {rows, x});
  const Tensor second = b.Make(Op::kStore, DType::kVoid, {row, y});
  const Tensor now = b.Make(Op::kAfter, DType::kVoid, {p, first, second});
  const Tensor weights = b.Literal(kF64, {3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6});
  const Tensor wrt[] = {p, x, y};
  const std::vector<Tensor> grads = Gradients((now * weights).Sum(), wrt);
  ASSERT_TRUE(b.status().ok()) << b.status();
  b.Output(grads[0], "dp");
  b.Output(grads[1], "dx");
  b.Output(grads[2], "dy");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto got = RunPlan(*plan, {{"x", HostTensor::Of<double>({2, 2}, {1, 2, 3, 4})},
                                   {"y", HostTensor::Of<double>({2}, {5, 6})}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->at("dp"), HostTensor::Of<double>({3, 2}, {1, 2, 0, 0, 0, 0}));
  EXPECT_EQ(got->at("dx"), HostTensor::Of<double>({2, 2}, {4, 3, 0, 0}));
  EXPECT_EQ(got->at("dy"), HostTensor::Of<double>({2}, {5, 6}));
}

TEST(GradientOpTest, ProductsWithZeros) {
  Builder b;
  const Tensor x = b.Param(kF64, {3, 3}, "x");
  const int64_t arg[] = {static_cast<int64_t>(ReduceKind::kMul), 1};
  const Tensor y = b.Make(Op::kReduce, DType::kVoid, {x}, arg).Sum();
  b.Output(Gradients(y, std::span(&x, 1))[0], "g");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto got =
      RunPlan(*plan, {{"x", HostTensor::Of<double>({3, 3}, {2, 3, 4, 0, 3, 4, 0, 3, 0})}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->at("g"), HostTensor::Of<double>({3, 3}, {12, 8, 6, 12, 0, 0, 0, 0, 0}));
}

TEST(GradientOpTest, SeveralOutputsWithGivenGradients) {
  Builder b;
  const Tensor x = b.Param(kF64, {2}, "x");
  const Tensor outputs[] = {x * x, x * 3};
  const Tensor seeds[] = {b.Literal(kF64, {2}, std::vector<double>{1, 10}),
                          b.Literal(kF64, {2}, std::vector<double>{100, 1000})};
  b.Output(Gradients(outputs, seeds, std::span(&x, 1))[0], "g");
  const auto plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto got = RunPlan(*plan, {{"x", HostTensor::Of<double>({2}, {5, 7})}});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->at("g"), HostTensor::Of<double>({2}, {310, 3140}));
}

TEST(GradientOpTest, MistakesHaveTheirMessages) {
  const auto message = [](auto make) {
    Builder b;
    const Tensor x = b.Param(kF64, {2, 3}, "x");
    make(b, x);
    return std::string(b.status().message());
  };
  EXPECT_THAT(message([](Builder&, Tensor x) { Gradients(x, std::span(&x, 1)); }),
              HasSubstr("the loss is f64 [2, 3], expected one element"));
  EXPECT_THAT(message([](Builder& b, Tensor x) {
                const Tensor n = b.Const(DType::kInt32, 1);
                Gradients(x.Sum(), std::span(&n, 1));
              }),
              HasSubstr("with respect to i32 [], expected a float tensor"));
  EXPECT_THAT(message([](Builder& b, Tensor x) {
                const Tensor seed = b.Const(kF64, 1);
                Gradients(std::span(&x, 1), std::span(&seed, 1), std::span(&x, 1));
              }),
              HasSubstr("output 0 is f64 [2, 3], its gradient f64 [], expected the same"));
}

TEST(GradientOpTest, FunctionsAreRefused) {
  Builder b;
  const Tensor x = b.Param(kF64, {}, "x");
  const int64_t arg_words[] = {0, 0};
  const Tensor arg = b.Make(Op::kArg, kF64, {}, arg_words);
  const Tensor body = b.Make(Op::kTuple, DType::kVoid, {arg * arg});
  const Tensor call = b.Make(Op::kCall, DType::kVoid, {body, x});
  const int64_t first[] = {0};
  const Tensor y = b.Make(Op::kGetTuple, DType::kVoid, {call}, first);
  ASSERT_TRUE(b.status().ok()) << b.status();
  Gradients(y, std::span(&x, 1));
  EXPECT_THAT(std::string(b.status().message()), HasSubstr("the op gettuple has no rule"));
}

}  // namespace
}  // namespace telegrad::testing
