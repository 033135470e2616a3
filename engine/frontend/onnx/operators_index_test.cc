// Indexing, ranges and normalizations, and the shape programs that exporters make of them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::Expect;
using test::Floats;
using test::Ints;
using test::ModelWriter;
using test::OneNode;

HostTensor Int64s(const Shape& shape, Ints values) {
  return HostTensor::Of<int64_t>(shape, values);
}

TEST(Index, GatherNd) {
  const HostTensor x = Floats({2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  Expect(OneNode{"GatherND"}({x, Int64s({2, 3}, {0, 0, 1, 1, -1, 0})}), Floats({2}, {1, 6}));
  Expect(OneNode{"GatherND"}({x, Int64s({2, 1, 2}, {0, 1, 1, 0})}),
         Floats({2, 1, 2}, {2, 3, 4, 5}));
  Expect(OneNode{"GatherND", 13, {{"batch_dims", int64_t{1}}}}({x, Int64s({2, 1}, {1, 0})}),
         Floats({2, 2}, {2, 3, 4, 5}));
  // An index out of range in one part is not one in range elsewhere.
  Expect(OneNode{"GatherND"}({x, Int64s({1, 3}, {0, 2, 0})}), Floats({1}, {0}));
}

TEST(Index, ScatterNd) {
  const HostTensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const HostTensor at = Int64s({2, 2}, {0, 1, 1, -1}), row = Int64s({2, 1}, {-1, -1});
  Expect(OneNode{"ScatterND", 16}({x, at, Floats({2}, {10, 20})}),
         Floats({2, 3}, {1, 10, 3, 4, 5, 20}));
  const auto reduced = [&](std::string reduction) {
    return OneNode{"ScatterND", 18, {{"reduction", std::move(reduction)}}}(
        {x, row, Floats({2, 3}, {1, 1, 1, 9, 9, 9})});
  };
  Expect(reduced("none"), Floats({2, 3}, {1, 2, 3, 9, 9, 9}));
  Expect(reduced("add"), Floats({2, 3}, {1, 2, 3, 14, 15, 16}));
  Expect(reduced("mul"), Floats({2, 3}, {1, 2, 3, 36, 45, 54}));
  Expect(reduced("min"), Floats({2, 3}, {1, 2, 3, 1, 1, 1}));
  Expect(reduced("max"), Floats({2, 3}, {1, 2, 3, 9, 9, 9}));
  EXPECT_EQ(reduced("sum").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Index, RangeAndConstantOfShape) {
  const auto range = [](const HostTensor& start, const HostTensor& limit, const HostTensor& step) {
    return OneNode{"Range", 11, {}, {true, true, true}}({start, limit, step});
  };
  const auto ints = [&](int64_t start, int64_t limit, int64_t step) {
    return range(Int64s({}, {start}), Int64s({}, {limit}), Int64s({}, {step}));
  };
  Expect(ints(2, 11, 3), Int64s({3}, {2, 5, 8}));
  Expect(ints(2, 12, 3), Int64s({4}, {2, 5, 8, 11}));
  Expect(ints(3, -3, -2), Int64s({3}, {3, 1, -1}));
  Expect(ints(3, 3, 1), Int64s({0}, {}));
  EXPECT_EQ(ints(0, 3, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ints(0, INT64_MAX, 1).status().code(), absl::StatusCode::kInvalidArgument);
  Expect(range(Floats({}, {1}), Floats({}, {2}), Floats({}, {0.25f})),
         Floats({4}, {1, 1.25f, 1.5f, 1.75f}));

  const auto filled = [](Ints shape, test::Attributes attributes) {
    const auto n = static_cast<int64_t>(shape.size());
    return OneNode{"ConstantOfShape", 9, std::move(attributes), {true}}({Int64s({n}, shape)});
  };
  Expect(filled({2, 2}, {}), Floats({2, 2}, {0, 0, 0, 0}));
  Expect(filled({3}, {{"value", Int64s({1}, {7})}}), Int64s({3}, {7, 7, 7}));
  Expect(filled({}, {{"value", Floats({1}, {7})}}), Floats({}, {7}));
  Expect(filled({0}, {}), Floats({0}, {}));
  EXPECT_EQ(filled({-1}, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(filled({2}, {{"value", Floats({2}, {7, 7})}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// PyTorch's expand(-1, n): the shape of x where the wanted one has -1.
TEST(Index, ShapeProgramsFold) {
  ModelWriter w;
  w.Input("x", DType::kFloat32, {3, 1});
  w.Initializer("wanted", Int64s({2}, {-1, 2})).Initializer("rank", Int64s({1}, {2}));
  w.Initializer("minus", Int64s({}, {-1})).Initializer("all", Int64s({1}, {-1}));
  w.Initializer("zero", Int64s({1}, {0})).Initializer("end", Int64s({1}, {INT64_MAX}));
  w.Initializer("step", Int64s({1}, {1}));
  w.Node("Shape", {"x"}, {"shape"});
  w.Node("ConstantOfShape", {"rank"}, {"ones"}, {{"value", Int64s({1}, {1})}});
  w.Node("Mul", {"ones", "minus"}, {"minus_ones"});
  w.Node("Equal", {"wanted", "minus_ones"}, {"open"});
  w.Node("Where", {"open", "shape", "wanted"}, {"chosen"});
  w.Node("Slice", {"chosen", "zero", "end", "", "step"}, {"sliced"});
  w.Node("Reshape", {"sliced", "all"}, {"list"});
  w.Node("Expand", {"x", "list"}, {"out"});
  w.Output("out");
  const std::string file = w.File(13);
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  const auto got = test::Run(*onnx, {Floats({3, 1}, {1, 2, 3})});
  ASSERT_TRUE(got.ok()) << got.status();
  Expect((*got)[0], Floats({3, 2}, {1, 1, 2, 2, 3, 3}));
}

TEST(Elementwise, ModuloAndComparisons) {
  const auto ints = [](std::initializer_list<int32_t> v) {
    return HostTensor::Of<int32_t>({static_cast<int64_t>(v.size())}, v);
  };
  const HostTensor a = ints({7, -7, 7, -7}), b = ints({3, 3, -3, -3});
  Expect(OneNode{"Mod"}({a, b}), ints({1, 2, -2, -1}));
  Expect(OneNode{"Mod", 13, {{"fmod", int64_t{1}}}}({a, b}), ints({1, -1, 1, -1}));
  const HostTensor x = Floats({3}, {1, NAN, 2}), y = Floats({3}, {1, 1, 1});
  const auto bools = [](std::string bytes) {
    return HostTensor{DType::kBool, {static_cast<int64_t>(bytes.size())}, bytes};
  };
  Expect(OneNode{"LessOrEqual"}({x, y}), bools({1, 0, 0}));
  Expect(OneNode{"GreaterOrEqual"}({x, y}), bools({1, 0, 1}));
  Expect(OneNode{"IsNaN"}({x}), bools({0, 1, 0}));
  Expect(OneNode{"Xor"}({bools({1, 1, 0}), bools({1, 0, 0})}), bools({0, 1, 0}));
  Expect(OneNode{"CastLike", 15}({ints({3, -4}), Floats({1}, {0})}), Floats({2}, {3, -4}));
}

TEST(Elementwise, ErfAndGelu) {
  std::vector<float> x, erf, gelu, approximate;
  for (int i = -60; i <= 60; ++i) {
    const float v = 0.1f * static_cast<float>(i);
    x.push_back(v);
    erf.push_back(std::erf(v));
    gelu.push_back(v * 0.5f * static_cast<float>(std::erfc(-v / std::sqrt(2.0))));
    const double inner = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    approximate.push_back(static_cast<float>(0.5 * v * (1 + std::tanh(inner))));
  }
  const auto of = [](const std::vector<float>& v) { return HostTensor::Of<float>({121}, v); };
  Expect(OneNode{"Erf"}({of(x)}), of(erf), 5e-7f);
  Expect(OneNode{"Gelu", 20}({of(x)}), of(gelu), 2e-6f);
  Expect(OneNode{"Gelu", 20, {{"approximate", std::string("tanh")}}}({of(x)}), of(approximate),
         2e-6f);
}

// The relative error stays small down to where the results are denormal: 1 + erf(x) has lost all of
// its digits at -5.5, 1 + tanh(y) at -4.
TEST(Elementwise, GeluDoesNotCancel) {
  std::vector<float> x = {-4.617f};
  for (int i = -1290; i <= 600; ++i) x.push_back(0.01f * static_cast<float>(i));
  const auto n = static_cast<int64_t>(x.size());
  const auto check = [&](const OneNode& node, auto want) {
    const auto got = node({HostTensor::Of<float>({n}, x)});
    ASSERT_TRUE(got.ok()) << got.status();
    const std::vector<float> values = got->Values<float>();
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = want(static_cast<double>(x[i]));
      EXPECT_NEAR(values[i], exact, 2e-5 * std::abs(exact) + 1e-38) << x[i];
    }
  };
  check(OneNode{"Gelu", 20}, [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); });
  check(OneNode{"Gelu", 20, {{"approximate", std::string("tanh")}}}, [](double v) {
    return v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  });
}

// The definition of each, in double precision.
TEST(Norm, LayerAndInstance) {
  std::mt19937_64 random(7);
  const HostTensor x = test::Random({2, 3, 4}, &random), scale = test::Random({3, 4}, &random),
                   bias = test::Random({3, 4}, &random);
  const auto at = [](const HostTensor& t, size_t i) { return t.Values<float>()[i]; };
  std::vector<float> want, means, inverses, by_channel;
  const auto moments = [&](size_t begin, size_t n, double epsilon, double* mean, double* inverse) {
    double sum = 0, squares = 0;
    for (size_t i = begin; i < begin + n; ++i) sum += at(x, i);
    *mean = sum / static_cast<double>(n);
    for (size_t i = begin; i < begin + n; ++i) squares += std::pow(at(x, i) - *mean, 2);
    *inverse = 1 / std::sqrt(squares / static_cast<double>(n) + epsilon);
  };
  double mean = 0, inverse = 0;
  for (size_t i = 0; i < 24; ++i) {
    moments(i / 12 * 12, 12, 0.5, &mean, &inverse);
    want.push_back(
        static_cast<float>((at(x, i) - mean) * inverse * at(scale, i % 12) + at(bias, i % 12)));
    if (i % 12 == 0) means.push_back(static_cast<float>(mean));
    if (i % 12 == 0) inverses.push_back(static_cast<float>(inverse));
    moments(i / 4 * 4, 4, 0.25, &mean, &inverse);
    const size_t channel = i / 4 % 3;
    by_channel.push_back(
        static_cast<float>((at(x, i) - mean) * inverse * at(scale, channel) + at(bias, channel)));
  }
  const auto layer =
      OneNode{"LayerNormalization", 17, {{"axis", int64_t{1}}, {"epsilon", 0.5f}}}.Results(
          {x, scale, bias}, {"y", "mean", "inverse"});
  ASSERT_TRUE(layer.ok()) << layer.status();
  Expect((*layer)[0], HostTensor::Of<float>({2, 3, 4}, want));
  Expect((*layer)[1], HostTensor::Of<float>({2, 1, 1}, means));
  Expect((*layer)[2], HostTensor::Of<float>({2, 1, 1}, inverses));
  const auto first = [](HostTensor t) {
    t.shape = {3};
    t.bytes.resize(12);
    return t;
  };
  Expect(OneNode{"InstanceNormalization", 13, {{"epsilon", 0.25f}}}({x, first(scale), first(bias)}),
         HostTensor::Of<float>({2, 3, 4}, by_channel));
}

TEST(Norm, LrnSumsNeighbouringChannels) {
  const std::vector<float> in = {1, 2, 3, 4, 5};
  for (const int64_t size : {1, 2, 3, 4}) {
    std::vector<float> want;
    for (int64_t i = 0; i < 5; ++i) {
      double sum = 0;
      for (int64_t j = i - (size - 1) / 2; j <= i + size / 2; ++j) {
        if (j >= 0 && j < 5) sum += in[j] * in[j];
      }
      want.push_back(
          static_cast<float>(in[i] / std::pow(2 + 0.5 * sum / static_cast<double>(size), 0.75)));
    }
    SCOPED_TRACE(size);
    Expect(OneNode{"LRN", 13, {{"size", size}, {"alpha", 0.5f}, {"bias", 2.0f}}}(
               {HostTensor::Of<float>({1, 5, 1}, in)}),
           HostTensor::Of<float>({1, 5, 1}, want));
  }
}

}  // namespace
}  // namespace telegrad::onnx
