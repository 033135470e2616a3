// Steps of optimizers against the formulas of their text, over several steps, and derivatives.
#include <cmath>
#include <random>

#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::ModelWriter;
using ::testing::HasSubstr;

constexpr char kDomain[] = "ai.onnx.preview.training";

// A step of `op` on two tensors that have `states` states each. `f` is the same of one element:
// [x, gradient, states...] -> [x, states...].
template <typename F>
void CheckStep(std::string_view op, int states, const test::Attributes& attributes, F f) {
  std::mt19937_64 random(3);
  const std::vector<Shape> shapes = {{3}, {2, 2}};
  const int parts = 2 + states;
  test::Names names = {"rate", "count"}, results;
  ModelWriter model;
  model.Input("rate", DType::kFloat32, {}).Input("count", DType::kInt64, {});
  for (int k = 0; k < parts; ++k) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      names.push_back(StrCat("in", k, "_", i));
      model.Input(names.back(), DType::kFloat32, shapes[i]);
      if (k != 1) results.push_back(StrCat("out", k, "_", i));
    }
  }
  model.Node(op, names, results, attributes, kDomain);
  for (const std::string& result : results) model.Output(result);
  const std::string file = model.File(13, 1, kDomain);
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  for (const int64_t count : {0, 1, 5}) {
    SCOPED_TRACE(count);
    std::vector<HostTensor> inputs = {HostTensor::Of<float>({}, {0.25f}),
                                      HostTensor::Of<int64_t>({}, {count})};
    for (int k = 0; k < parts; ++k) {
      for (const Shape& shape : shapes) {
        HostTensor x = test::Random(shape, &random);
        std::vector<float> values = x.Values<float>();
        for (float& v : values) v = k + 1 == parts ? std::abs(v) + 0.5f : v;  // squares
        inputs.push_back(HostTensor::Of<float>(shape, values));
      }
    }
    const auto got = test::Run(*onnx, inputs);
    ASSERT_TRUE(got.ok()) << got.status();
    for (size_t i = 0; i < shapes.size(); ++i) {
      for (int64_t e = 0; e < NumElements(shapes[i]); ++e) {
        std::vector<double> element;
        for (int k = 0; k < parts; ++k) {
          element.push_back(inputs[2 + k * shapes.size() + i].Values<float>()[e]);
        }
        const std::vector<double> want = f(element, count);
        for (size_t k = 0; k < want.size(); ++k) {
          EXPECT_NEAR((*got)[k * shapes.size() + i].Values<float>()[e], want[k],
                      1e-5 * (1 + std::abs(want[k])))
              << "result " << k << " of tensor " << i;
        }
      }
    }
  }
}

using Element = std::vector<double>;
constexpr double kRate = 0.25;

TEST(Training, Adagrad) {
  CheckStep("Adagrad", 1,
            {{"norm_coefficient", 0.5f}, {"decay_factor", 0.25f}, {"epsilon", 0.125f}},
            [](const Element& e, int64_t count) {
              const double g = 0.5 * e[0] + e[1], h = e[2] + g * g;
              const double rate = kRate / (1 + 0.25 * static_cast<double>(count));
              return Element{e[0] - rate * g / (std::sqrt(h) + 0.125), h};
            });
}

TEST(Training, AdamCorrectsItsRateFromTheFirstStepOn) {
  CheckStep("Adam", 2,
            {{"norm_coefficient", 0.5f},
             {"norm_coefficient_post", 0.25f},
             {"alpha", 0.75f},
             {"beta", 0.875f},
             {"epsilon", 0.125f}},
            [](const Element& e, int64_t count) {
              const double g = 0.5 * e[0] + e[1], v = 0.75 * e[2] + 0.25 * g;
              const double h = 0.875 * e[3] + 0.125 * g * g, n = static_cast<double>(count);
              const double rate =
                  count > 0 ? kRate * std::sqrt(1 - std::pow(0.875, n)) / (1 - std::pow(0.75, n))
                            : kRate;
              return Element{0.75 * (e[0] - rate * v / (std::sqrt(h) + 0.125)), v, h};
            });
}

TEST(Training, MomentumInBothModes) {
  for (const std::string mode : {"standard", "nesterov"}) {
    CheckStep("Momentum", 1,
              {{"norm_coefficient", 0.5f}, {"alpha", 0.75f}, {"beta", 0.25f}, {"mode", mode}},
              [&](const Element& e, int64_t count) {
                const double g = 0.5 * e[0] + e[1];
                const double v = 0.75 * e[2] + (count > 0 ? 0.25 : 1) * g;
                return Element{e[0] - kRate * (mode == "standard" ? v : g + 0.75 * v), v};
              });
  }
}

// y = x^2 w: derivatives of the first and the second order, w held constant.
ModelWriter Differentiated(const test::Names& inputs) {
  return ModelWriter()
      .Input("x", DType::kFloat32, {3})
      .Input("w", DType::kFloat32, {3})
      .Node("Mul", {"x", "x"}, {"square"})
      .Node("Mul", {"square", "w"}, {"y"})
      .Node("Gradient", inputs, {"dx"},
            {{"xs", test::Names{"x"}}, {"zs", test::Names{"w"}}, {"y", std::string("y")}}, kDomain)
      .Node("Gradient", inputs, {"dxx"},
            {{"xs", test::Names{"x"}}, {"zs", test::Names{"w"}}, {"y", std::string("dx")}}, kDomain)
      .Output("dx")
      .Output("dxx");
}

TEST(Training, GradientsOfGradients) {
  const auto onnx = ImportOnnx(Differentiated({"x", "w"}).File(13, 1, kDomain));
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  const auto got = test::Run(
      *onnx, {HostTensor::Of<float>({3}, {1, 2, 3}), HostTensor::Of<float>({3}, {4, 5, 6})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0], HostTensor::Of<float>({3}, {8, 20, 36}));
  EXPECT_EQ((*got)[1], HostTensor::Of<float>({3}, {8, 10, 12}));
}

TEST(Training, WhatIsRefused) {
  const auto message = [](const test::Names& inputs) {
    return ImportOnnx(Differentiated(inputs).File(13, 1, kDomain)).status().ToString();
  };
  EXPECT_THAT(message({"w", "x"}), HasSubstr("input 0 is not 'x'"));
  EXPECT_THAT(message({"x"}), HasSubstr("one for each of 2 names"));
  const auto step = [](const test::Names& inputs, const std::string& mode) {
    ModelWriter model;
    model.Input("r", DType::kFloat32, {}).Input("t", DType::kInt64, {});
    model.Input("x", DType::kFloat32, {3}).Input("g", DType::kFloat32, {2});
    model.Node("Momentum", inputs, {"a", "b"},
               {{"norm_coefficient", 0.5f}, {"alpha", 0.75f}, {"beta", 0.25f}, {"mode", mode}},
               kDomain);
    return ImportOnnx(model.Output("a").Output("b").File(13, 1, kDomain)).status().ToString();
  };
  EXPECT_THAT(step({"r", "t", "x", "g", "x"}, "standard"), HasSubstr("input 3 is f32 [2]"));
  EXPECT_THAT(step({"r", "t", "x", "x", "x"}, "fast"), HasSubstr("mode 'fast'"));
  EXPECT_THAT(step({"r", "r", "x", "x", "x"}, "standard"), HasSubstr("count of steps f32"));
  EXPECT_THAT(step({"x", "t", "x", "x", "x"}, "standard"), HasSubstr("expected one element"));
  EXPECT_THAT(step({"r", "t", "x", "x", "x", "x"}, "standard"), HasSubstr("a multiple of 3"));
}

}  // namespace
}  // namespace telegrad::onnx
