// Gradients of small graphs against central differences, at ties and kinks, through Detach, of
// long chains, and the refusal of what has no gradient.
#include "engine/frontend/autograd/gradient.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/host_random.h"
#include "engine/frontend/tensor/test_eval.h"

namespace telegrad {
namespace {

using test::Bindings;
using test::Values;
using ::testing::HasSubstr;

constexpr DType kF64 = DType::kFloat64;

struct Case {
  const char* name;
  std::vector<Shape> inputs;  // of x0, x1, ...
  std::function<Tensor(Builder&, const std::vector<Tensor>&)> f;
  double low = -2, high = 2;
};

// Sums f(x) with fixed unequal weights into a loss and compares its gradients with central
// differences.
void Check(const Case& c, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << c.name << ", seed " << seed);
  Builder b;
  Bindings bindings;
  std::vector<Tensor> x;
  uint64_t draw = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const std::string name = StrCat("x", i);
    x.push_back(b.Param(kF64, c.inputs[i], name));
    Values v(x.back().size());
    for (double& e : v) e = c.low + (c.high - c.low) * UnitFraction(seed, draw++);
    bindings[name] = v;
  }
  const Tensor y = c.f(b, x).Flatten(0);
  ASSERT_TRUE(y.valid()) << b.status();
  const Tensor weight = b.Iota(DType::kInt32, y.size()).Cast(kF64) * 0.37 + 1.0;
  const Tensor loss = (y * weight).Sum();
  const std::vector<Tensor> grads = Gradients(loss, x);
  b.Output(loss, "loss");
  for (size_t i = 0; i < grads.size(); ++i) b.Output(grads[i], StrCat("g", i));
  const absl::StatusOr<Plan> plan = b.Finish();
  ASSERT_TRUE(plan.ok()) << plan.status();
  test::Run(*plan, &bindings);

  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < x.size(); ++i) {
    const std::string name = StrCat("x", i);
    const Values grad = bindings[StrCat("g", i)];
    ASSERT_EQ(static_cast<int64_t>(grad.size()), x[i].size());
    for (size_t k = 0; k < grad.size(); ++k) {
      const auto loss_at = [&](double d) {
        Bindings moved = bindings;
        moved[name][k] += d;
        test::Run(*plan, &moved);
        return moved["loss"][0];
      };
      const double expected = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
      EXPECT_NEAR(grad[k], expected, 1e-6 * (1 + std::abs(expected))) << name << "[" << k << "]";
    }
  }
}

using In = const std::vector<Tensor>&;

const Case kCases[] = {
    {"add, broadcast", {{2, 3}, {3}}, [](Builder&, In x) { return x[0] + x[1]; }},
    {"sub, scalar", {{2, 3}, {}}, [](Builder&, In x) { return x[0] - x[1]; }},
    {"mul, broadcast", {{2, 1, 3}, {2, 1}}, [](Builder&, In x) { return x[0] * x[1]; }},
    {"mul with itself", {{4}}, [](Builder&, In x) { return x[0] * x[0] * x[0]; }},
    {"div", {{3}, {3}}, [](Builder&, In x) { return x[0] / x[1]; }, 0.5, 2},
    {"neg, exp", {{3}}, [](Builder&, In x) { return (-x[0]).Exp(); }},
    {"log, sqrt", {{3}}, [](Builder&, In x) { return x[0].Log() + x[0].Sqrt(); }, 0.5, 2},
    {"reciprocal", {{3}}, [](Builder&, In x) { return x[0].Reciprocal(); }, 0.5, 2},
    {"tanh, sigmoid", {{3}}, [](Builder&, In x) { return x[0].Tanh() * x[0].Sigmoid(); }},
    {"maximum", {{6}, {6}}, [](Builder&, In x) { return x[0].Maximum(x[1]); }},
    {"minimum", {{6}, {}}, [](Builder&, In x) { return x[0].Minimum(x[1]); }},
    {"relu, abs", {{6}}, [](Builder&, In x) { return x[0].Relu() + x[0].Abs(); }},
    {"where",
     {{6}, {6}},
     [](Builder&, In x) { return x[0].Lt(x[1]).Where(x[0] * 3.0, x[1] * x[1]); }},
    {"reshape, permute, flip",
     {{2, 3}},
     [](Builder&, In x) { return x[0].Transpose().Flip({1}).Reshape({6}) * x[0].Reshape({6}); }},
    {"pad, shrink",
     {{2, 3}},
     [](Builder&, In x) { return x[0].Pad({1, 0, 0, 2}, 5).Slice(1, 1, 4) * 2.0; }},
    {"concat", {{2, 3}, {2, 1}}, [](Builder&, In x) { return Concat(x, 1); }},
    {"sum, mean", {{2, 3}}, [](Builder&, In x) { return x[0].Sum({1}) * x[0].Mean({0, 1}); }},
    {"max", {{3, 4}}, [](Builder&, In x) { return x[0].Max({1}) * x[0].Max({0, 1}); }},
    {"softmax", {{2, 4}}, [](Builder&, In x) { return x[0].Softmax(); }},
    {"log softmax", {{4, 2}}, [](Builder&, In x) { return x[0].LogSoftmax(0); }},
    {"cross entropy",
     {{3, 5}},
     [](Builder& b, In x) { return x[0].CrossEntropy(b.Iota(DType::kInt32, 3)); }},
    {"gelu", {{7}}, [](Builder&, In x) { return x[0].Gelu() + x[0].GeluTanh(); }},
    {"standardize", {{3, 4}}, [](Builder&, In x) { return x[0].Standardize({-1}, 0.1); }},
    {"matmul", {{2, 2, 3}, {3, 4}}, [](Builder&, In x) { return x[0].MatMul(x[1]); }},
    {"conv",
     {{2, 2, 4, 5}, {4, 1, 3, 2}},
     [](Builder&, In x) {
       return x[0].Conv(x[1], {.stride = {2, 1}, .dilation = {1, 2}, .pads = {1, 1, 0, 1}}, 2);
     }},
    {"max pool",
     {{1, 2, 4, 5}},
     [](Builder&, In x) { return x[0].MaxPool({2, 3}, {.stride = {2, 1}, .pads = {1}}); }},
    {"max pool, long windows",
     {{1, 12, 3}},
     [](Builder&, In x) { return x[0].MaxPool({9, 2}, {.pads = {4, 3, 0, 0}}); }},
    {"max pool, disjoint",
     {{1, 2, 5, 4}},
     [](Builder&, In x) { return x[0].MaxPool({2, 2}, {.stride = {2}}); }},
    {"avg pool",
     {{1, 5}},
     [](Builder&, In x) { return x[0].AvgPool({3}, {.stride = {2}, .pads = {1}}, false); }},
    {"contiguous, cast",
     {{3}},
     [](Builder&, In x) { return x[0].Contiguous().Cast(DType::kFloat32).Cast(kF64); }},
};

TEST(GradientTest, MatchesCentralDifferences) {
  for (const Case& c : kCases) {
    for (uint64_t seed : {11u, 12u, 13u}) Check(c, seed);
  }
}

TEST(GradientTest, DetachStops) {
  Builder b;
  const Tensor x = b.Param(kF64, {2}, "x");
  b.Output(Gradients((x * x.Detach()).Sum(), {&x, 1})[0], "g");
  Bindings bindings = {{"x", {3, 4}}};
  test::Run(*b.Finish(), &bindings);
  EXPECT_THAT(bindings["g"], testing::ElementsAre(3, 4));
}

TEST(GradientTest, TiesOfMaxDivideAndReluIsFlatAtZero) {
  Builder b;
  const Tensor x = b.Param(kF64, {3}, "x");
  b.Output(Gradients(x.Max(), {&x, 1})[0], "max");
  b.Output(Gradients(x.Relu().Sum(), {&x, 1})[0], "relu");
  Bindings bindings = {{"x", {0, -1, 0}}};
  test::Run(*b.Finish(), &bindings);
  EXPECT_THAT(bindings["max"], testing::ElementsAre(0.5, 0, 0.5));
  EXPECT_THAT(bindings["relu"], testing::ElementsAre(0, 0, 0));
}

TEST(GradientTest, OfAnIntermediateAndOfWhatTheLossDoesNotUse) {
  Builder b;
  const Tensor x = b.Param(kF64, {2}, "x"), unused = b.Param(kF64, {3}, "unused");
  const Tensor y = x * 2.0;
  const Tensor wrt[] = {y, unused};
  const std::vector<Tensor> grads = Gradients((y * y).Sum(), wrt);
  b.Output(grads[0], "g0");
  b.Output(grads[1], "g1");
  Bindings bindings = {{"x", {1, 5}}};
  test::Run(*b.Finish(), &bindings);
  EXPECT_THAT(bindings["g0"], testing::ElementsAre(4, 20));
  EXPECT_THAT(bindings["g1"], testing::ElementsAre(0, 0, 0));
}

TEST(GradientTest, RefusesWhatHasNoGradient) {
  const auto message = [](auto make) {
    Builder b;
    make(b, b.Param(kF64, {2}, "x"));
    return std::string(b.status().message());
  };
  EXPECT_THAT(message([](Builder&, Tensor x) { Gradients(x, {&x, 1}); }),
              HasSubstr("the loss is f64 [2]"));
  EXPECT_THAT(message([](Builder& b, Tensor x) {
                const Tensor i = b.Param(DType::kInt32, {}, "i");
                Gradients(x.Sum(), {&i, 1});
              }),
              HasSubstr("with respect to i32"));
}

// A chain of a hundred thousand operations: nothing may recurse.
TEST(GradientTest, LongChain) {
  Builder b;
  const Tensor x = b.Param(kF64, {}, "x");
  Tensor y = x;
  for (int i = 0; i < 100'000; ++i) y = y + x;
  b.Output(Gradients(y, {&x, 1})[0], "g");
  Bindings bindings = {{"x", {1}}};
  test::Run(*b.Finish(), &bindings);
  EXPECT_THAT(bindings["g"], testing::ElementsAre(100'001));
}

}  // namespace
}  // namespace telegrad
