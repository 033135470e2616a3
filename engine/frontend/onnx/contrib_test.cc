// com.microsoft's quantized operators, and what QuantizeLinear stores. Numbers were computed by
// hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::Attributes;
using test::Expect;
using test::Floats;
using test::Ints;
using test::ModelWriter;
using test::Names;
using ::testing::FloatNear;
using ::testing::Pointwise;

HostTensor Bytes(const Shape& shape, std::initializer_list<uint8_t> values) {
  return HostTensor::Of<uint8_t>(shape, values);
}
HostTensor Scalar(float value) { return Floats({}, {value}); }

int Nodes(const OnnxPlan& onnx, const std::function<bool(UOp)>& wanted) {
  const UOp root = onnx.plan.graph.root();
  int found = 0;
  for (const uint32_t id : PostOrder(root)) found += wanted(root.graph()->at(id)) ? 1 : 0;
  return found;
}

// A node of com.microsoft; inputs without a type are left out.
absl::StatusOr<HostTensor> MsNode(std::string_view op, const std::vector<HostTensor>& inputs,
                                  const Attributes& attributes = {}) {
  ModelWriter writer;
  Names names;
  std::vector<HostTensor> bound;
  for (const HostTensor& input : inputs) {
    names.push_back(input.dtype == DType::kVoid ? "" : StrCat("in", names.size()));
    if (names.back().empty()) continue;
    writer.Input(names.back(), input.dtype, input.shape);
    bound.push_back(input);
  }
  const std::string file =
      writer.Node(op, names, {"out"}, attributes, "com.microsoft").Output("out").File(17);
  TG_ASSIGN_OR_RETURN(const OnnxPlan onnx, ImportOnnx(file));
  TG_ASSIGN_OR_RETURN(std::vector<HostTensor> out, test::Run(onnx, bound));
  return std::move(out[0]);
}

// A = [1 2] - 1 of scale 0.5, B' = [[3 4]] - 2 of scale 0.25, C = 8: (0 * 1 + 1 * 2 + 8) / 8.
TEST(QGemm, WithAndWithoutAScaleOfTheResult) {
  std::vector<HostTensor> inputs = {Bytes({1, 2}, {1, 2}),
                                    Scalar(0.5f),
                                    Bytes({}, {1}),
                                    Bytes({1, 2}, {3, 4}),
                                    Scalar(0.25f),
                                    Bytes({}, {2}),
                                    HostTensor::Of<int32_t>({1}, {8})};
  const Attributes turned = {{"transB", int64_t{1}}};
  Expect(MsNode("QGemm", inputs, turned), Floats({1, 1}, {1.25f}));
  inputs.push_back(Scalar(0.1f));
  inputs.push_back(Bytes({}, {3}));
  Expect(MsNode("QGemm", inputs, turned), Bytes({1, 1}, {15}));  // 1.25 / 0.1 to even, + 3
}

TEST(QLinear, SoftmaxMeanWhereAndPool) {
  // Two equal numbers are a half each: 128 of a scale of 1/256.
  Expect(MsNode("QLinearSoftmax", {Bytes({1, 2}, {7, 7}), Scalar(1), Bytes({}, {0}),
                                   Scalar(1.0f / 256), Bytes({}, {0})}),
         Bytes({1, 2}, {128, 128}));
  Expect(MsNode("QLinearSoftmax",
                {Bytes({1, 2, 2}, {7, 7, 7, 7}), Scalar(1), Bytes({}, {0}), Scalar(1.0f / 256),
                 Bytes({}, {0})},
                {{"opset", int64_t{11}}, {"axis", int64_t{1}}}),
         Bytes({1, 2, 2}, {64, 64, 64, 64}));
  Expect(MsNode("QLinearReduceMean",
                {Bytes({2, 2}, {2, 4, 10, 20}), Scalar(1), Bytes({}, {0}), Scalar(0.5f),
                 Bytes({}, {1})},
                {{"axes", Ints{1}}, {"keepdims", int64_t{0}}}),
         Bytes({2}, {7, 31}));
  Expect(MsNode("QLinearWhere", {HostTensor::Of<bool>({2}, {true, false}), Bytes({2}, {4, 4}),
                                 Scalar(1), Bytes({}, {0}), Bytes({2}, {9, 9}), Scalar(2),
                                 Bytes({}, {5}), Scalar(1), Bytes({}, {10})}),
         Bytes({2}, {14, 18}));
  Expect(MsNode("QLinearAveragePool",
                {Bytes({1, 1, 2, 2}, {1, 2, 3, 6}), Scalar(1), Bytes({}, {0}), Scalar(1),
                 Bytes({}, {0})},
                {{"kernel_shape", Ints{2, 2}}}),
         Bytes({1, 1, 1, 1}, {3}));
}

// One unit whose gates' weights are 0 but the cell's, w: c = tanh(w x) / 2, h = tanh(c) / 2.
TEST(DynamicQuantizeLstm, DequantizesItsWeights) {
  const auto zeros = [](const Shape& shape) {
    return HostTensor{DType::kFloat32, shape,
                      std::string(BytesOf(DType::kFloat32, NumElements(shape)), '\0')};
  };
  const HostTensor none{};
  const HostTensor w = Bytes({1, 1, 4}, {100, 100, 100, 150});  // - 100, of scale 0.02: 1
  const auto got = MsNode("DynamicQuantizeLSTM",
                          {Floats({1, 1, 1}, {0.5f}), w, Bytes({1, 1, 4}, {0, 0, 0, 0}), none, none,
                           zeros({1, 1, 1}), zeros({1, 1, 1}), none, Floats({1}, {0.02f}),
                           Bytes({1}, {100}), Floats({1}, {1}), Bytes({1}, {0})},
                          {{"hidden_size", int64_t{1}}});
  ASSERT_TRUE(got.ok()) << got.status();
  const float cell = std::tanh(0.5f) / 2;
  EXPECT_THAT(got->Values<float>(),
              Pointwise(FloatNear(1e-5f), std::vector<float>{std::tanh(cell) / 2}));
}

// (20 - 10) 0.5 + (7 - 4) 0.25 = 5.75 is 12.8 of the result's units, and 5 more; the largest and
// the least sum are beyond u8.
TEST(QLinearAdd, AddsInUnitsOfTheResult) {
  const auto got = MsNode("QLinearAdd",
                          {Bytes({3}, {20, 255, 0}), Scalar(0.5F), Bytes({}, {10}), Bytes({1}, {7}),
                           Scalar(0.25F), Bytes({}, {4}), Scalar(0.45F), Bytes({}, {5})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->Values<uint8_t>(), (std::vector<uint8_t>{18, 255, 0}));
}

TEST(QuantizeLinear, ResultsAreStored) {
  ModelWriter writer;
  writer.Input("x", DType::kFloat32, {4})
      .Initializer("s", Scalar(0.5f))
      .Initializer("z", Bytes({}, {3}))
      .Node("QuantizeLinear", {"x", "s", "z"}, {"q"})
      .Node("DequantizeLinear", {"q", "s", "z"}, {"y"})
      .Output("y");
  const std::string file = writer.File(13);
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  int stored = 0;
  const UOp root = onnx->plan.graph.root();
  for (const uint32_t id : PostOrder(root)) stored += root.graph()->at(id).is(Op::kContiguous);
  EXPECT_EQ(stored, 1);
  const auto got = test::Run(*onnx, {Floats({4}, {0.3f, -9, 1000, 1.2f})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].Values<float>(),
              Pointwise(FloatNear(1e-6f), std::vector<float>{0.5f, -1.5f, 126, 1}));
}

// Quotients by a scale that is known are computed by products, and round as the quotients of a
// processor do: x at the halves between integers and beside them, and at the ends of f32.
TEST(QuantizeLinear, DividesByAKnownScaleWithoutDivisions) {
  constexpr uint32_t kSeed = 5;
  std::mt19937 random(kSeed);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (int round = 0; round < 40; ++round) {
    const float scale = std::ldexp(1 + static_cast<float>(random() % 0x800000) / 0x800000,
                                   static_cast<int>(random() % 20) - 12);
    const auto zero = static_cast<uint8_t>(random());
    std::vector<float> x = {0.0F, -0.0F, kInf, -kInf, 3e38F, -3e38F, 1e-40F, -1e-40F};
    for (int n = -260; n <= 260; ++n) {
      float at = static_cast<float>(n + 0.5) * scale;
      for (int i = 0; i < 3; ++i) at = std::nextafter(at, -kInf);
      for (int i = 0; i < 7; ++i) x.push_back(at = std::nextafter(at, kInf));
    }
    std::vector<uint8_t> want;
    for (const float value : x) {
      const float quotient = std::nearbyint(value / scale) + static_cast<float>(zero);
      want.push_back(static_cast<uint8_t>(std::clamp(quotient, 0.0F, 255.0F)));
    }
    const Shape shape = {static_cast<int64_t>(x.size())};
    ModelWriter writer;
    writer.Input("x", DType::kFloat32, shape)
        .Initializer("s", Scalar(scale))
        .Initializer("z", Bytes({}, {zero}))
        .Node("QuantizeLinear", {"x", "s", "z"}, {"q"})
        .Output("q");
    const auto onnx = ImportOnnx(writer.File(13));
    ASSERT_TRUE(onnx.ok()) << onnx.status();
    const UOp root = onnx->plan.graph.root();
    for (const uint32_t id : PostOrder(root)) EXPECT_FALSE(root.graph()->at(id).is(Op::kFDiv));
    HostTensor given{DType::kFloat32, shape, {}};
    given.bytes.assign(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
    const auto got = test::Run(*onnx, {given});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].Values<uint8_t>(), want) << "seed " << kSeed << ", scale " << scale;
  }
}

// Between the same scales, the largest element is that of the largest byte: no float is left. With
// other scales behind it, bytes are compared all the same.
TEST(QuantizeLinear, MaximaBetweenTheSameScalesAreOfBytes) {
  for (const bool same : {true, false}) {
    ModelWriter writer;
    writer.Input("x", DType::kUInt8, {1, 1, 3, 3})
        .Initializer("s", Scalar(0.1F))
        .Initializer("t", Scalar(same ? 0.1F : 0.25F))
        .Initializer("z", Bytes({}, {3}))
        .Node("DequantizeLinear", {"x", "s", "z"}, {"d"})
        .Node("MaxPool", {"d"}, {"m"},
              {{"kernel_shape", std::vector<int64_t>{3, 3}},
               {"strides", std::vector<int64_t>{2, 2}},
               {"pads", std::vector<int64_t>{1, 1, 1, 1}}})
        .Node("QuantizeLinear", {"m", "t", "z"}, {"y"})
        .Output("y");
    const std::string file = writer.File(13);
    const auto onnx = ImportOnnx(file);
    ASSERT_TRUE(onnx.ok()) << onnx.status();
    EXPECT_EQ(Nodes(*onnx, [](UOp u) { return u.is(Op::kReduce) && u.dtype() != DType::kUInt8; }),
              0);
    EXPECT_EQ(Nodes(*onnx, [](UOp u) { return u.is(Op::kMul); }) == 0, same);
    const auto got = test::Run(*onnx, {Bytes({1, 1, 3, 3}, {0, 1, 2, 9, 3, 4, 250, 5, 6})});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ((*got)[0].Values<uint8_t>(),
              same ? (std::vector<uint8_t>{9, 4, 250, 6}) : (std::vector<uint8_t>{5, 3, 102, 4}));
  }
}

// What only looks like dequantizing: a difference that wraps around is no longer in the order of
// the bytes.
TEST(QuantizeLinear, MaximaAreOfFloatsWhereADifferenceWraps) {
  ModelWriter writer;
  writer.Input("x", DType::kUInt8, {1, 1, 2, 2})
      .Initializer("far", HostTensor::Of<int32_t>({}, {-2147483548}))
      .Initializer("one", Scalar(1))
      .Node("Cast", {"x"}, {"wide"}, {{"to", int64_t{6}}})
      .Node("Sub", {"wide", "far"}, {"less"})
      .Node("Cast", {"less"}, {"float"}, {{"to", int64_t{1}}})
      .Node("Mul", {"float", "one"}, {"d"})
      .Node("MaxPool", {"d"}, {"y"}, {{"kernel_shape", std::vector<int64_t>{2, 2}}})
      .Output("y");
  const std::string file = writer.File(13);
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  const auto got = test::Run(*onnx, {Bytes({1, 1, 2, 2}, {50, 200, 120, 99})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].Values<float>(), (std::vector<float>{2147483647.0f}));
}

// Windows that may lie in the padding alone are of floats, where these are -inf.
TEST(QuantizeLinear, WindowsWithoutElementsAreOfFloats) {
  ModelWriter writer;
  writer.Input("x", DType::kUInt8, {1, 1, 2})
      .Initializer("s", Scalar(1))
      .Initializer("z", Bytes({}, {100}))
      .Node("DequantizeLinear", {"x", "s", "z"}, {"d"})
      .Node("MaxPool", {"d"}, {"y"},
            {{"kernel_shape", std::vector<int64_t>{2}},
             {"dilations", std::vector<int64_t>{3}},
             {"pads", std::vector<int64_t>{1, 1}}})
      .Output("y");
  const std::string file = writer.File(13);
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  const auto got = test::Run(*onnx, {Bytes({1, 1, 2}, {7, 9})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].Values<float>(),
            (std::vector<float>{-std::numeric_limits<float>::infinity()}));
}

// What a quantizer writes for the channels of a weight is zeros: nothing is subtracted.
TEST(DequantizeLinear, SubtractsNoZeros) {
  for (const int8_t zero : {int8_t{0}, int8_t{3}}) {
    ModelWriter writer;
    writer.Input("x", DType::kInt8, {2, 2})
        .Initializer("s", Floats({2}, {0.5F, 2}))
        .Initializer("z", HostTensor::Of<int8_t>({2}, {zero, 0}))
        .Node("DequantizeLinear", {"x", "s", "z"}, {"y"}, {{"axis", int64_t{0}}})
        .Output("y");
    const auto onnx = ImportOnnx(writer.File(13));
    ASSERT_TRUE(onnx.ok()) << onnx.status();
    int differences = 0;
    const UOp root = onnx->plan.graph.root();
    for (const uint32_t id : PostOrder(root)) differences += root.graph()->at(id).is(Op::kSub);
    EXPECT_EQ(differences, zero == 0 ? 0 : 1);
    const auto got = test::Run(*onnx, {HostTensor::Of<int8_t>({2, 2}, {7, -7, 3, 4})});
    ASSERT_TRUE(got.ok()) << got.status();
    const float less = static_cast<float>(zero) * 0.5F;
    EXPECT_EQ((*got)[0].Values<float>(), (std::vector<float>{3.5F - less, -3.5F - less, 6, 8}));
  }
}

// A bias of integers takes no less memory than one of floats, and is made one at import.
TEST(DequantizeLinear, OfAKnownBiasIsAWeight) {
  ModelWriter writer;
  writer.Input("x", DType::kFloat32, {3})
      .Initializer("b", HostTensor::Of<int32_t>({3}, {8, -3, 100}))
      .Initializer("s", Floats({3}, {0.5F, 2, 0.25F}))
      .Initializer("z", HostTensor::Of<int32_t>({3}, {0, 1, 0}))
      .Node("DequantizeLinear", {"b", "s", "z"}, {"bias"}, {{"axis", int64_t{0}}})
      .Node("Add", {"x", "bias"}, {"y"})
      .Output("y");
  const auto onnx = ImportOnnx(writer.File(13));
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  EXPECT_EQ(Nodes(*onnx, [](UOp u) { return u.is(Op::kCast) || u.is(Op::kMul); }), 0);
  const auto got = test::Run(*onnx, {Floats({3}, {1, 2, 3})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].Values<float>(), (std::vector<float>{5, -6, 28}));
}

// Processors have half as many lanes of f64, and conversions on the way.
TEST(QLinearMatMul, ScalesInF32) {
  ModelWriter writer;
  writer.Input("a", DType::kUInt8, {1, 2})
      .Initializer("as", Scalar(0.5F))
      .Initializer("az", Bytes({}, {1}))
      .Initializer("b", Bytes({2, 1}, {3, 4}))
      .Initializer("bs", Scalar(0.25F))
      .Initializer("bz", Bytes({}, {2}))
      .Initializer("ys", Scalar(0.1F))
      .Initializer("yz", Bytes({}, {3}))
      .Node("QLinearMatMul", {"a", "as", "az", "b", "bs", "bz", "ys", "yz"}, {"y"})
      .Output("y");
  const auto onnx = ImportOnnx(writer.File(17));
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  EXPECT_EQ(Nodes(*onnx, [](UOp u) { return u.dtype() == DType::kFloat64; }), 0);
  const auto got = test::Run(*onnx, {Bytes({1, 2}, {6, 8})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ((*got)[0].Values<uint8_t>(), std::vector<uint8_t>{27});  // 19 / 8 / 0.1 to even, + 3
}

// A matrix [n, k] of elements of `bits`, in blocks that need not end with the row.
struct FewBits {
  int64_t bits, rows, n, k, block;
  bool zero;
};

void ExpectProduct(const FewBits& f, std::mt19937_64* random) {
  SCOPED_TRACE(StrCat(f.bits, " bits, ", f.rows, " rows, k ", f.k, f.zero ? ", zero points" : ""));
  const int64_t blocks = (f.k + f.block - 1) / f.block, per = 8 / f.bits;
  const int64_t row_bytes = (blocks + per - 1) / per;
  std::vector<uint8_t> packed(f.n * blocks * f.block / per), points(f.n * row_bytes);
  for (uint8_t& byte : packed) byte = static_cast<uint8_t>((*random)());
  for (uint8_t& byte : points) byte = static_cast<uint8_t>((*random)());
  const HostTensor a = test::Random({f.rows, f.k}, random);
  const HostTensor scales = test::Random({f.n * blocks}, random);
  const auto element = [&](const std::vector<uint8_t>& of, int64_t begin, int64_t i) {
    return (of[begin + i / per] >> (i % per * f.bits)) & ((1 << f.bits) - 1);
  };
  std::vector<float> want;
  for (int64_t row = 0; row < f.rows; ++row) {
    for (int64_t n = 0; n < f.n; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < f.k; ++k) {
        const int64_t block = k / f.block;
        const int zero = f.zero ? element(points, n * row_bytes, block) : 1 << (f.bits - 1);
        const int q = element(packed, n * blocks * f.block / per, k);
        sum += a.Values<float>()[row * f.k + k] * scales.Values<float>()[n * blocks + block] *
               (q - zero);
      }
      want.push_back(static_cast<float>(sum));
    }
  }
  std::vector<HostTensor> inputs = {
      a, HostTensor::Of<uint8_t>({f.n, blocks, f.block / per}, packed), scales};
  if (f.zero) inputs.push_back(HostTensor::Of<uint8_t>({f.n * row_bytes}, points));
  Expect(MsNode("MatMulNBits", inputs,
                {{"K", f.k}, {"N", f.n}, {"bits", f.bits}, {"block_size", f.block}}),
         HostTensor::Of<float>({f.rows, f.n}, want), 2e-2f);
}

TEST(MatMulNBits, MultipliesFewAndManyRows) {
  std::mt19937_64 random(6);
  for (const int64_t bits : {2, 4, 8}) {
    for (const int64_t rows : {1, 3, 12}) {
      for (const bool zero : {false, true}) {
        ExpectProduct({bits, rows, 5, 96, 32, zero}, &random);
        ExpectProduct({bits, rows, 3, 80, 32, zero}, &random);
      }
    }
  }
}

// Blocks of 16 of rows of 40: the last one ends with the row. Index -1 is the last row.
TEST(GatherBlockQuantized, RowsOfATable) {
  std::mt19937_64 random(8);
  constexpr int64_t kRows = 5, kK = 40, kBlock = 16, kBlocks = 3;
  for (const int64_t bits : {4, 8}) {
    for (const bool zero : {false, true}) {
      SCOPED_TRACE(StrCat(bits, zero ? " bits, zero points" : " bits"));
      const int64_t per = 8 / bits, points_row = (kBlocks + per - 1) / per;
      std::vector<uint8_t> data(kRows * kK / per), points(kRows * points_row);
      for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
      for (uint8_t& byte : points) byte = static_cast<uint8_t>(random());
      const HostTensor scales = test::Random({kRows, kBlocks}, &random);
      const std::vector<float> scale = scales.Values<float>();
      const auto element = [&](const std::vector<uint8_t>& of, int64_t begin, int64_t i) {
        return (of[begin + i / per] >> (i % per * bits)) & ((1 << bits) - 1);
      };
      std::vector<float> want;
      for (const int64_t row : {4, 0, 2, 4}) {
        for (int64_t k = 0; k < kK; ++k) {
          const int middle = zero ? element(points, row * points_row, k / kBlock) : 1 << (bits - 1);
          want.push_back(static_cast<float>(element(data, row * kK / per, k) - middle) *
                         scale[row * kBlocks + k / kBlock]);
        }
      }
      std::vector<HostTensor> inputs = {HostTensor::Of<uint8_t>({kRows, kK / per}, data),
                                        HostTensor::Of<int64_t>({2, 2}, {-1, 0, 2, 4}), scales};
      if (zero) inputs.push_back(HostTensor::Of<uint8_t>({kRows, points_row}, points));
      Expect(MsNode("GatherBlockQuantized", inputs, {{"bits", bits}, {"block_size", kBlock}}),
             HostTensor::Of<float>({2, 2, kK}, want));
    }
  }
}

TEST(QAttention, IsTheAttentionOfDequantizedNumbers) {
  std::mt19937_64 random(12);
  constexpr int64_t kBatch = 2, kTokens = 3, kHidden = 4;
  const auto bytes = [&](const Shape& shape) {
    std::vector<uint8_t> out(static_cast<size_t>(NumElements(shape)));
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
    return HostTensor::Of<uint8_t>(shape, out);
  };
  const HostTensor x = bytes({kBatch, kTokens, kHidden}), w = bytes({kHidden, 3 * kHidden});
  const HostTensor bias = test::Random({3 * kHidden}, &random);
  const HostTensor scales = Floats(
      {12}, {0.01f, 0.02f, 0.03f, 0.01f, 0.02f, 0.03f, 0.01f, 0.02f, 0.03f, 0.01f, 0.02f, 0.03f});
  const auto dequantized = [](const HostTensor& t, int zero, const std::vector<float>& scale) {
    std::vector<float> out;
    for (const uint8_t byte : t.Values<uint8_t>()) {
      out.push_back(static_cast<float>(byte - zero) * scale[out.size() % scale.size()]);
    }
    return HostTensor::Of<float>(t.shape, out);
  };
  const HostTensor lengths = HostTensor::Of<int32_t>({kBatch}, {3, 2}), none{};
  for (const int64_t causal : {0, 1}) {
    const Attributes attributes = {{"num_heads", int64_t{2}}, {"unidirectional", causal}};
    const auto want = MsNode(
        "Attention",
        {dequantized(x, 120, {0.01f}), dequantized(w, 130, scales.Values<float>()), bias, lengths},
        attributes);
    ASSERT_TRUE(want.ok()) << want.status();
    Expect(MsNode("QAttention",
                  {x, w, bias, Scalar(0.01f), scales, lengths, Bytes({}, {120}), Bytes({}, {130})},
                  attributes),
           *want);
  }
}

// [height, width, channel], windows of two rows and one column.
TEST(NhwcMaxPool, TakesTheLargestOfEachChannel) {
  Expect(MsNode("NhwcMaxPool", {Bytes({1, 2, 2, 3}, {1, 9, 3, 4, 5, 6, 7, 8, 9, 0, 1, 200})},
                {{"kernel_shape", Ints{2, 1}}}),
         Bytes({1, 1, 2, 3}, {7, 9, 9, 4, 5, 200}));
}

TEST(Trilu, IsTheStandards) {
  Expect(MsNode("Trilu", {Floats({2, 2}, {1, 2, 3, 4})}, {{"upper", int64_t{0}}}),
         Floats({2, 2}, {1, 0, 3, 4}));
}

TEST(CDist, BetweenRows) {
  const std::vector<HostTensor> rows = {Floats({2, 2}, {0, 0, 3, 1}), Floats({1, 2}, {3, 4})};
  Expect(MsNode("CDist", rows, {{"metric", std::string("euclidean")}}), Floats({2, 1}, {5, 3}));
  Expect(MsNode("CDist", rows), Floats({2, 1}, {25, 9}));
}

}  // namespace
}  // namespace telegrad::onnx
