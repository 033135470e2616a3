// Operators against the definitions in ONNX's Operators.md, spelled as literal loops or as numbers.
#include "engine/frontend/onnx/operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <random>

#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::Attributes;
using test::Expect;
using test::Floats;
using test::Ints;
using test::OneNode;
using test::Random;
using ::testing::ElementsAre;

TEST(Elementwise, Broadcasts) {
  Expect(OneNode{"Sub"}({Floats({2, 1}, {1, 2}), Floats({3}, {10, 20, 30})}),
         Floats({2, 3}, {-9, -19, -29, -8, -18, -28}));
  Expect(OneNode{"Div"}({Floats({2}, {1, 3}), Floats({}, {4})}), Floats({2}, {0.25, 0.75}));
  Expect(OneNode{"Sum"}({Floats({2}, {1, 2}), Floats({1}, {3}), Floats({2}, {5, 7})}),
         Floats({2}, {9, 12}));
  Expect(OneNode{"Mean"}({Floats({2}, {1, 2}), Floats({1}, {3})}), Floats({2}, {2, 2.5}));
  Expect(OneNode{"Max"}({Floats({2}, {1, 7}), Floats({2}, {3, 5})}), Floats({2}, {3, 7}));
  Expect(OneNode{"Min"}({Floats({2}, {1, 7}), Floats({2}, {3, 5})}), Floats({2}, {1, 5}));
}

TEST(Elementwise, IntegersDivideTowardZero) {
  const auto min = std::numeric_limits<int32_t>::min();
  const std::vector<int32_t> a = {7, -7, 7, -7, 6, -6, min, 0, 1},
                             b = {2, 2, -2, -2, 3, 3, 1, -5, 5};
  std::vector<int32_t> want;
  for (size_t i = 0; i < a.size(); ++i) want.push_back(a[i] / b[i]);
  const auto n = static_cast<int64_t>(a.size());
  Expect(OneNode{"Div"}({HostTensor::Of<int32_t>({n}, a), HostTensor::Of<int32_t>({n}, b)}),
         HostTensor::Of<int32_t>({n}, want));
}

TEST(Elementwise, Functions) {
  const std::vector<float> x = {-2.5f, -0.5f, 0.25f, 1.0f, 3.0f};
  const std::vector<std::pair<std::string_view, std::function<double(double)>>> rows = {
      {"Relu", [](double v) { return std::max(v, 0.0); }},
      {"Sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"Tanh", [](double v) { return std::tanh(v); }},
      {"Exp", [](double v) { return std::exp(v); }},
      {"Neg", [](double v) { return -v; }},
      {"Abs", [](double v) { return std::abs(v); }},
      {"Floor", [](double v) { return std::floor(v); }},
      {"Ceil", [](double v) { return std::ceil(v); }},
      {"Reciprocal", [](double v) { return 1 / v; }},
      {"LeakyRelu", [](double v) { return v < 0 ? 0.01 * v : v; }},
      {"Identity", [](double v) { return v; }},
      {"Dropout", [](double v) { return v; }},
  };
  for (const auto& [op, f] : rows) {
    SCOPED_TRACE(op);
    std::vector<float> want;
    for (float v : x) want.push_back(static_cast<float>(f(v)));
    Expect(OneNode{op}({HostTensor::Of<float>({5}, x)}), HostTensor::Of<float>({5}, want));
  }
  Expect(OneNode{"Log"}({Floats({2}, {0.5f, 8})}), Floats({2}, {-0.6931472f, 2.0794415f}));
  Expect(OneNode{"Sqrt"}({Floats({2}, {0.25f, 9})}), Floats({2}, {0.5f, 3}));
}

TEST(Elementwise, PowClipCastWhere) {
  for (const auto& [exponent, want] :
       std::vector<std::pair<float, HostTensor>>{{2, Floats({2}, {9, 16})},
                                                 {3, Floats({2}, {27, 64})},
                                                 {0.5f, Floats({2}, {1.7320508f, 2})},
                                                 {-1, Floats({2}, {1.0f / 3, 0.25f})}}) {
    Expect(OneNode{"Pow", 13, {}, {false, true}}({Floats({2}, {3, 4}), Floats({}, {exponent})}),
           want);
  }
  Expect(OneNode{"Pow"}({Floats({2}, {3, 4}), Floats({3, 1}, {2, 0, -2})}),
         Floats({3, 2}, {9, 16, 1, 1, 1.0f / 9, 1.0f / 16}));
  Expect(OneNode{"Pow"}({Floats({2}, {3, 4}), HostTensor::Of<int64_t>({}, {3})}),
         Floats({2}, {27, 64}), 1e-4f);
  const HostTensor ints = HostTensor::Of<int32_t>({2}, {3, 4});
  Expect(OneNode{"Pow"}({ints, ints}), HostTensor::Of<int32_t>({2}, {27, 256}));
  const HostTensor x = Floats({3}, {-4, 0.5f, 4});
  Expect(OneNode{"Clip", 10, {{"min", -1.0f}, {"max", 2.0f}}}({x}), Floats({3}, {-1, 0.5f, 2}));
  Expect(OneNode{"Clip", 10, {{"max", 2.0f}}}({x}), Floats({3}, {-4, 0.5f, 2}));
  Expect(OneNode{"Clip", 13}({x, Floats({}, {-1}), Floats({}, {2})}), Floats({3}, {-1, 0.5f, 2}));
  Expect(OneNode{"Cast", 13, {{"to", int64_t{6}}}}({x}), HostTensor::Of<int32_t>({3}, {-4, 0, 4}));
  const HostTensor yes{DType::kBool, {3}, std::string("\1\0\1", 3)};
  Expect(OneNode{"Where"}({yes, x, Floats({}, {7})}), Floats({3}, {-4, 7, 4}));
  Expect(OneNode{"Less"}({x, Floats({}, {1})}), {DType::kBool, {3}, std::string("\1\1\0", 3)});
}

TEST(Movement, Shapes) {
  const HostTensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto ints = [](Ints v) {
    const auto n = static_cast<int64_t>(v.size());
    return HostTensor::Of<int64_t>({n}, v);
  };
  const auto with = [](HostTensor t, Shape shape) {
    t.shape = std::move(shape);
    return t;
  };
  const std::vector<bool> second = {false, true};
  Expect(OneNode{"Reshape", 13, {}, second}({x, ints({0, -1, 1})}), with(x, {2, 3, 1}));
  Expect(OneNode{"Reshape", 13, {}, second}({x, ints({-1})}), with(x, {6}));
  Expect(OneNode{"Reshape", 14, {{"allowzero", int64_t{1}}}, second}(
             {Floats({0, 2}, {}), ints({4, 0})}),
         Floats({4, 0}, {}));
  Expect(OneNode{"Flatten", 13, {{"axis", int64_t{0}}}}({x}), with(x, {1, 6}));
  Expect(OneNode{"Flatten", 13, {{"axis", int64_t{-1}}}}({x}), x);
  Expect(OneNode{"Flatten", 13, {{"axis", int64_t{2}}}}({x}), with(x, {6, 1}));
  Expect(OneNode{"Transpose"}({x}), Floats({3, 2}, {1, 4, 2, 5, 3, 6}));
  Expect(OneNode{"Unsqueeze", 11, {{"axes", Ints{0, 3}}}}({x}), with(x, {1, 2, 3, 1}));
  Expect(OneNode{"Unsqueeze", 13, {}, second}({x, ints({-1, 0})}), with(x, {1, 2, 3, 1}));
  Expect(OneNode{"Squeeze", 11, {{"axes", Ints{0, -1}}}}({with(x, {1, 6, 1})}), with(x, {6}));
  Expect(OneNode{"Squeeze", 13, {}, second}({with(x, {1, 6, 1}), ints({0})}), with(x, {6, 1}));
  Expect(OneNode{"Squeeze", 13}({with(x, {1, 6, 1})}), with(x, {6}));
  Expect(OneNode{"Expand", 13, {}, second}({Floats({2, 1}, {1, 2}), ints({2, 1, 2})}),
         Floats({2, 2, 2}, {1, 1, 2, 2, 1, 1, 2, 2}));
  Expect(OneNode{"Concat", 13, {{"axis", int64_t{-1}}}}({x, Floats({2, 1}, {8, 9})}),
         Floats({2, 4}, {1, 2, 3, 8, 4, 5, 6, 9}));
  Expect(OneNode{"Shape"}({x}), ints({2, 3}));
  Expect(OneNode{"Shape", 15, {{"start", int64_t{-1}}}}({x}), ints({3}));
  Expect(OneNode{"Gather", 13, {{"axis", int64_t{1}}}}(
             {x, HostTensor::Of<int64_t>({2, 2}, {0, -1, 1, 1})}),
         Floats({2, 2, 2}, {1, 3, 2, 2, 4, 6, 5, 5}));
  Expect(OneNode{"Pad", 13, {}, {false, true, true}}(
             {Floats({1, 2}, {1, 2}), ints({1, 0, 0, 2}), Floats({}, {7})}),
         Floats({2, 4}, {7, 7, 7, 7, 1, 2, 7, 7}));
  const auto padded = [&](std::string mode) {
    return OneNode{"Pad", 18, {{"mode", std::move(mode)}}, {false, true, true, true}}(
        {x, ints({1, -1}), Floats({}, {0}), ints({-1})});
  };
  Expect(padded("reflect"), Floats({2, 3}, {2, 1, 2, 5, 4, 5}));
  Expect(padded("edge"), Floats({2, 3}, {1, 1, 2, 4, 4, 5}));
  Expect(padded("wrap"), Floats({2, 3}, {3, 1, 2, 6, 4, 5}));
  EXPECT_EQ(padded("mirror").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Reduce, AxesAndSoftmax) {
  const HostTensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 9});
  Expect(OneNode{"ReduceMean", 13, {{"axes", Ints{1}}}}({x}), Floats({2, 1}, {2, 6}));
  Expect(OneNode{"ReduceMean", 18, {{"keepdims", int64_t{0}}}, {false, true}}(
             {x, HostTensor::Of<int64_t>({1}, {-2})}),
         Floats({3}, {2.5f, 3.5f, 6}));
  Expect(OneNode{"ReduceSum", 11, {{"keepdims", int64_t{0}}}}({x}), Floats({}, {24}));
  Expect(OneNode{"ReduceSum", 13, {{"noop_with_empty_axes", int64_t{1}}}}({x}), x);
  Expect(OneNode{"ReduceMax", 13, {{"axes", Ints{0}}}}({x}), Floats({1, 3}, {4, 5, 9}));
  Expect(OneNode{"ReduceMin", 13, {{"axes", Ints{0}}}}({x}), Floats({1, 3}, {1, 2, 3}));

  const HostTensor y = Floats({1, 2, 2}, {0, 0.6931472f, 0, 0});  // exp: 1, 2, 1, 1
  Expect(OneNode{"Softmax", 13}({y}), Floats({1, 2, 2}, {1.0f / 3, 2.0f / 3, 0.5f, 0.5f}));
  Expect(OneNode{"Softmax", 13, {{"axis", int64_t{1}}}}({y}),
         Floats({1, 2, 2}, {0.5f, 2.0f / 3, 0.5f, 1.0f / 3}));
  // Before opset 13, all axes from 1 on together.
  Expect(OneNode{"Softmax", 11}({y}), Floats({1, 2, 2}, {0.2f, 0.4f, 0.2f, 0.2f}));
  Expect(OneNode{"LogSoftmax", 13}({y}),
         Floats({1, 2, 2}, {-1.0986123f, -0.4054651f, -0.6931472f, -0.6931472f}));
}

TEST(Reduce, Products) {
  const HostTensor a = Floats({2, 2}, {1, 2, 3, 4}), b = Floats({2, 2}, {5, 6, 7, 8});
  Expect(OneNode{"MatMul"}({a, b}), Floats({2, 2}, {19, 22, 43, 50}));
  Expect(OneNode{"Gemm", 13, {{"transA", int64_t{1}}, {"alpha", 2.0f}}}({a, b}),
         Floats({2, 2}, {52, 60, 76, 88}));
  Expect(OneNode{"Gemm", 13, {{"transB", int64_t{1}}, {"beta", 0.5f}}}({a, b, Floats({2}, {2, 4})}),
         Floats({2, 2}, {18, 25, 40, 55}));
  // By channel: (x - mean) scale / sqrt(variance + epsilon) + bias.
  Expect(OneNode{"BatchNormalization", 13, {{"epsilon", 0.0f}, {"momentum", 0.5f}}}(
             {Floats({1, 2, 2}, {1, 2, 3, 4}), Floats({2}, {2, 3}), Floats({2}, {10, 20}),
              Floats({2}, {1, 2}), Floats({2}, {4, 0.25f})}),
         Floats({1, 2, 2}, {10, 11, 26, 32}));
}

// --- windows, as literal loops over two spatial axes ---

struct Case {
  int64_t height, width, kernel[2], stride[2], dilation[2], begin[2], end[2];
  int64_t Out(int i) const {
    const int64_t in = (i == 0 ? height : width) + begin[i] + end[i];
    return (in - (kernel[i] - 1) * dilation[i] - 1) / stride[i] + 1;
  }
};

// Calls f(y, x) for each position of the window (oy, ox), positions outside of the input included.
template <typename F>
void ForEachTap(const Case& c, int64_t oy, int64_t ox, F f) {
  for (int64_t ky = 0; ky < c.kernel[0]; ++ky) {
    for (int64_t kx = 0; kx < c.kernel[1]; ++kx) {
      f(oy * c.stride[0] + ky * c.dilation[0] - c.begin[0],
        ox * c.stride[1] + kx * c.dilation[1] - c.begin[1], ky, kx);
    }
  }
}

Attributes AttributesOf(const Case& c, bool pool) {
  Attributes out = {{"strides", Ints{c.stride[0], c.stride[1]}},
                    {"dilations", Ints{c.dilation[0], c.dilation[1]}},
                    {"pads", Ints{c.begin[0], c.begin[1], c.end[0], c.end[1]}}};
  if (pool) out["kernel_shape"] = Ints{c.kernel[0], c.kernel[1]};
  return out;
}

// x [N, C, H, W], w [O, C / groups, KH, KW], b [O].
HostTensor LiteralConv(const Case& c, const HostTensor& x, const HostTensor& w, const HostTensor& b,
                       int64_t groups) {
  const int64_t n = x.shape[0], in = w.shape[1], out = w.shape[0], oh = c.Out(0), ow = c.Out(1);
  const std::vector<float> xs = x.Values<float>(), ws = w.Values<float>(), bs = b.Values<float>();
  std::vector<float> ys;
  for (int64_t i = 0; i < n * out * oh * ow; ++i) {
    const int64_t ox = i % ow, oy = i / ow % oh, o = i / ow / oh % out, image = i / ow / oh / out;
    double sum = bs[o];
    for (int64_t k = 0; k < in; ++k) {
      const int64_t channel = o / (out / groups) * in + k;
      ForEachTap(c, oy, ox, [&](int64_t iy, int64_t ix, int64_t ky, int64_t kx) {
        if (iy < 0 || ix < 0 || iy >= c.height || ix >= c.width) return;
        sum += static_cast<double>(
                   xs[((image * x.shape[1] + channel) * c.height + iy) * c.width + ix]) *
               ws[((o * in + k) * c.kernel[0] + ky) * c.kernel[1] + kx];
      });
    }
    ys.push_back(static_cast<float>(sum));
  }
  return HostTensor::Of<float>({n, out, oh, ow}, ys);
}

enum class Pool { kMax, kAverage, kAverageWithPads };

HostTensor LiteralPool(const Case& c, const HostTensor& x, Pool pool) {
  const int64_t planes = x.shape[0] * x.shape[1], oh = c.Out(0), ow = c.Out(1);
  const std::vector<float> xs = x.Values<float>();
  std::vector<float> ys;
  for (int64_t i = 0; i < planes * oh * ow; ++i) {
    const int64_t ox = i % ow, oy = i / ow % oh, plane = i / ow / oh;
    double sum = 0, most = -std::numeric_limits<double>::infinity();
    int64_t inside = 0;
    ForEachTap(c, oy, ox, [&](int64_t iy, int64_t ix, int64_t, int64_t) {
      if (iy < 0 || ix < 0 || iy >= c.height || ix >= c.width) return;
      const double v = xs[(plane * c.height + iy) * c.width + ix];
      sum += v;
      most = std::max(most, v);
      ++inside;
    });
    const auto taps = static_cast<double>(c.kernel[0] * c.kernel[1]);
    ys.push_back(static_cast<float>(pool == Pool::kMax       ? most
                                    : pool == Pool::kAverage ? sum / static_cast<double>(inside)
                                                             : sum / taps));
  }
  return HostTensor::Of<float>({x.shape[0], x.shape[1], oh, ow}, ys);
}

TEST(Window, ConvolutionsAndPools) {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    Case c{};
    for (int i : {0, 1}) {
      c.kernel[i] = between(1, 3);
      c.stride[i] = between(1, 3);
      c.dilation[i] = between(1, 2);
      // A pad below the kernel: no window lies in the padding alone.
      c.begin[i] = between(0, c.kernel[i] - 1);
      c.end[i] = between(0, c.kernel[i] - 1);
    }
    c.height = between(6, 9);
    c.width = between(6, 9);
    const int64_t groups = between(1, 2), in = between(1, 2), out = groups * between(1, 2);
    const HostTensor x = Random({between(1, 2), groups * in, c.height, c.width}, &random);
    const HostTensor w = Random({out, in, c.kernel[0], c.kernel[1]}, &random);
    const HostTensor b = Random({out}, &random);
    Attributes conv = AttributesOf(c, false);
    conv["group"] = groups;
    Expect(OneNode{"Conv", 11, conv}({x, w, b}), LiteralConv(c, x, w, b, groups), 1e-4f);
    Expect(OneNode{"MaxPool", 12, AttributesOf(c, true)}({x}), LiteralPool(c, x, Pool::kMax));

    Attributes average = AttributesOf(c, true);
    Expect(OneNode{"AveragePool", 19, average}({x}), LiteralPool(c, x, Pool::kAverage));
    average["count_include_pad"] = int64_t{1};
    Expect(OneNode{"AveragePool", 19, average}({x}), LiteralPool(c, x, Pool::kAverageWithPads));
  }
}

TEST(Window, AutoPad) {
  // A sum over windows of 2 shows where an odd pad goes.
  const HostTensor x = Floats({1, 1, 3}, {1, 2, 4}), ones = Floats({1, 1, 2}, {1, 1});
  const auto conv = [&](std::string mode) {
    return OneNode{"Conv", 11, {{"auto_pad", std::move(mode)}}}({x, ones});
  };
  Expect(conv("SAME_UPPER"), Floats({1, 1, 3}, {3, 6, 4}));
  Expect(conv("SAME_LOWER"), Floats({1, 1, 3}, {1, 3, 6}));
  Expect(conv("VALID"), Floats({1, 1, 2}, {3, 6}));
  EXPECT_FALSE(conv("SAME").ok());
  // The number of windows is the size divided by the stride, rounded up.
  Expect(OneNode{"Conv", 11, {{"auto_pad", "SAME_UPPER"}, {"strides", Ints{2}}}}({x, ones}),
         Floats({1, 1, 2}, {3, 4}));
}

// The values are ONNX Runtime's.
TEST(Window, AutoPadOfPoolsWhoseStepsAreLongerThanTheirWindows) {
  const HostTensor x = Floats({1, 1, 8}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto pool = [&](const char* op, const char* mode, int64_t stride) {
    return OneNode{
        op,
        18,
        {{"auto_pad", std::string(mode)}, {"kernel_shape", Ints{1}}, {"strides", Ints{stride}}}}(
        {x});
  };
  for (const char* op : {"AveragePool", "LpPool"}) {
    Expect(pool(op, "SAME_UPPER", 4), Floats({1, 1, 2}, {2, 6}));  // 3 left out: 1 and 2
    Expect(pool(op, "SAME_LOWER", 4), Floats({1, 1, 2}, {2, 6}));
    Expect(pool(op, "SAME_UPPER", 3), Floats({1, 1, 3}, {1, 4, 7}));  // 1 left out: 0 and 1
    Expect(pool(op, "SAME_LOWER", 3), Floats({1, 1, 3}, {1, 4, 7}));
    Expect(pool(op, "SAME_UPPER", 7), Floats({1, 1, 2}, {1, 8}));
    Expect(pool(op, "SAME_UPPER", 6), Floats({1, 1, 2}, {1, 7}));
  }
}

// By the text: what is left out is split as pads are. The positions are those in the whole input.
TEST(Window, AutoPadOfMaxPoolsWhoseStepsAreLongerThanTheirWindows) {
  const HostTensor x = Floats({1, 1, 8}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto check = [&](const char* mode, int64_t stride, std::initializer_list<float> want) {
    const auto got =
        OneNode{
            "MaxPool",
            12,
            {{"auto_pad", std::string(mode)}, {"kernel_shape", Ints{1}}, {"strides", Ints{stride}}}}
            .Results({x}, {"y", "at"});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].Values<float>(), std::vector<float>(want));
    std::vector<int64_t> at;
    for (const float value : want) at.push_back(static_cast<int64_t>(value) - 1);
    EXPECT_EQ((*got)[1].Values<int64_t>(), at);
  };
  check("SAME_UPPER", 4, {2, 6});  // 3 left out: 1 and 2
  check("SAME_LOWER", 4, {3, 7});  // 2 and 1
  check("SAME_UPPER", 3, {1, 4, 7});
  check("SAME_LOWER", 3, {2, 5, 8});
  check("SAME_UPPER", 7, {1, 8});
  // Rows and columns of a plane of 4 x 8, of which 3 rows and 1 column are left out.
  std::vector<float> values(32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  for (const int64_t column_major : {0, 1}) {
    const auto got = OneNode{
        "MaxPool",
        12,
        {{"auto_pad", std::string("SAME_LOWER")},
         {"kernel_shape", Ints{1, 1}},
         {"storage_order", column_major},
         {"strides",
          Ints{4, 3}}}}.Results({HostTensor::Of<float>({1, 1, 4, 8}, values)}, {"y", "at"});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].Values<float>(), (std::vector<float>{17, 20, 23}));
    EXPECT_EQ((*got)[1].Values<int64_t>(),
              column_major != 0 ? (Ints{6, 18, 30}) : (Ints{17, 20, 23}));
  }
}

TEST(Window, CeilModeAndGlobalPools) {
  const HostTensor x = Floats({1, 1, 5}, {1, 2, 3, 4, 6});
  Attributes pool = {{"kernel_shape", Ints{2}}, {"strides", Ints{2}}};
  Expect(OneNode{"MaxPool", 12, pool}({x}), Floats({1, 1, 2}, {2, 4}));
  pool["ceil_mode"] = int64_t{1};
  Expect(OneNode{"MaxPool", 12, pool}({x}), Floats({1, 1, 3}, {2, 4, 6}));
  Expect(OneNode{"AveragePool", 12, pool}({x}), Floats({1, 1, 3}, {1.5f, 3.5f, 6}));
  pool["count_include_pad"] = int64_t{1};  // what ceil_mode adds is no padding
  Expect(OneNode{"AveragePool", 19, pool}({x}), Floats({1, 1, 3}, {1.5f, 3.5f, 6}));
  // A last window that would begin beyond the input is not made.
  Expect(OneNode{"MaxPool",
                 12,
                 {{"kernel_shape", Ints{1}}, {"strides", Ints{3}}, {"ceil_mode", int64_t{1}}}}({x}),
         Floats({1, 1, 2}, {1, 4}));
  Expect(OneNode{"GlobalAveragePool"}({x}), Floats({1, 1, 1}, {3.2f}));
  Expect(OneNode{"GlobalMaxPool"}({x}), Floats({1, 1, 1}, {6}));
}

}  // namespace
}  // namespace telegrad::onnx
