// Casts, quantization and attention: rules whose numbers the standard's text gives.
#include <gtest/gtest.h>

#include <limits>

#include "engine/frontend/onnx/test_node.h"

namespace telegrad::onnx {
namespace {

using test::Expect;
using test::Floats;
using test::ModelWriter;
using test::OneNode;

constexpr float kInf = std::numeric_limits<float>::infinity();

// x cast to a type, and what comes of it cast to another that can be looked at.
absl::StatusOr<HostTensor> Through(const HostTensor& x, DType type, DType shown,
                                   const test::Attributes& more = {}) {
  ModelWriter writer;
  test::Attributes first = more;
  first["to"] = static_cast<int64_t>(Info(type).onnx);
  writer.Input("x", x.dtype, x.shape)
      .Node("Cast", {"x"}, {"y"}, first)
      .Node("Cast", {"y"}, {"z"}, {{"to", static_cast<int64_t>(Info(shown).onnx)}})
      .Output("z");
  const std::string file = writer.File(24);
  TG_ASSIGN_OR_RETURN(const OnnxPlan plan, ImportOnnx(file));
  TG_ASSIGN_OR_RETURN(std::vector<HostTensor> out, test::Run(plan, {x}));
  return std::move(out[0]);
}

TEST(Cast, Float8KeepsItsLargestUnlessToldOtherwise) {
  const HostTensor x = Floats({5}, {1e6f, -1e6f, kInf, -kInf, 1});
  constexpr struct {
    DType type;
    float largest;
  } kTypes[] = {{DType::kFloat8E4M3, 448},
                {DType::kFloat8E4M3Fnuz, 240},
                {DType::kFloat8E5M2, 57344},
                {DType::kFloat8E5M2Fnuz, 57344}};
  for (const auto& [type, m] : kTypes) {
    SCOPED_TRACE(Name(type));
    Expect(Through(x, type, DType::kFloat32), Floats({5}, {m, -m, m, -m, 1}));
  }
  Expect(Through(x, DType::kFloat8E5M2, DType::kFloat32, {{"saturate", int64_t{0}}}),
         Floats({5}, {kInf, -kInf, kInf, -kInf, 1}), 0);
}

TEST(Cast, FewBitsWrap) {
  const HostTensor x = Floats({6}, {-9, -8, 7, 8, 15, 16});
  Expect(Through(x, DType::kInt4, DType::kInt8),
         HostTensor::Of<int8_t>({6}, {7, -8, 7, -8, -1, 0}));
  Expect(Through(x, DType::kUInt4, DType::kUInt8),
         HostTensor::Of<uint8_t>({6}, {7, 8, 7, 8, 15, 0}));
  const HostTensor y = Floats({4}, {-3, 1, 2, 3});
  Expect(Through(y, DType::kInt2, DType::kInt8), HostTensor::Of<int8_t>({4}, {1, 1, -2, -1}));
  Expect(Through(y, DType::kUInt2, DType::kUInt8), HostTensor::Of<uint8_t>({4}, {1, 1, 2, 3}));
}

TEST(Cast, PowersOfTwoRoundAsTheModeSays) {
  const HostTensor x = Floats({4}, {1.1f, 1.5f, 1.9f, 4});
  const auto cast = [&](std::string mode) {
    return Through(x, DType::kFloat8E8M0, DType::kFloat32, {{"round_mode", std::move(mode)}});
  };
  Expect(cast("up"), Floats({4}, {2, 2, 2, 4}));
  Expect(cast("down"), Floats({4}, {1, 1, 1, 4}));
  Expect(cast("nearest"), Floats({4}, {1, 2, 2, 4}));
  EXPECT_EQ(cast("sideways").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Quantize, HalvesGoToEvenAndTheEndsHold) {
  const HostTensor x = Floats({6}, {0.5f, 1.5f, 2.5f, -0.5f, 1000, -1000});
  Expect(OneNode{"QuantizeLinear", 21}({x, Floats({}, {1}), HostTensor::Of<int8_t>({}, {1})}),
         HostTensor::Of<int8_t>({6}, {1, 3, 3, 1, 127, -128}));
  // One scale for every two elements, the last block short.
  const HostTensor y = Floats({1, 3}, {2, 4, 6});
  Expect(OneNode{"QuantizeLinear", 21, {{"axis", int64_t{1}}, {"block_size", int64_t{2}}}}(
             {y, Floats({1, 2}, {2, 3}), HostTensor::Of<uint8_t>({1, 2}, {0, 10})}),
         HostTensor::Of<uint8_t>({1, 3}, {1, 2, 12}));
  Expect(OneNode{"DequantizeLinear", 21, {{"axis", int64_t{1}}, {"block_size", int64_t{2}}}}(
             {HostTensor::Of<uint8_t>({1, 3}, {1, 2, 12}), Floats({1, 2}, {2, 3}),
              HostTensor::Of<uint8_t>({1, 2}, {0, 10})}),
         Floats({1, 3}, {2, 4, 6}));
}

TEST(Attention, AQueryThatSeesNothingGivesZero) {
  const HostTensor q = Floats({1, 1, 2, 1}, {1, 2}), v = Floats({1, 1, 2, 1}, {3, 5});
  const HostTensor mask{DType::kBool, {2, 2}, std::string("\0\0\1\0", 4)};
  Expect(OneNode{"Attention", 24}({q, q, v, mask}), Floats({1, 1, 2, 1}, {0, 3}));
}

TEST(Resize, SizesAreProductsOfFloats) {
  const HostTensor x = Floats({5}, {1, 2, 3, 4, 5});
  const auto out = OneNode{"Resize", 13, {{"mode", "nearest"}}, {false, true, true}}(
      {x, HostTensor::Of<float>({0}, std::initializer_list<float>{}), Floats({1}, {2.6f})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->shape, Shape{13});
}

// Whole multiples repeat elements and gather none, whatever the positions between pixels are.
TEST(Resize, WholeMultiplesAreViews) {
  for (const std::string_view mode : {"half_pixel", "asymmetric"}) {
    for (const float scale : {3.0F, 2.5F}) {
      ModelWriter writer;
      writer.Input("x", DType::kFloat32, {2, 2})
          .Initializer("scales", Floats({2}, {1, scale}))
          .Node("Resize", {"x", "", "scales"}, {"y"},
                {{"mode", "nearest"},
                 {"nearest_mode", mode == "asymmetric" ? "floor" : "round_prefer_floor"},
                 {"coordinate_transformation_mode", std::string(mode)}})
          .Output("y");
      const std::string file = writer.File(13);
      const auto onnx = ImportOnnx(file);
      ASSERT_TRUE(onnx.ok()) << onnx.status();
      const UOp root = onnx->plan.graph.root();
      int gathers = 0;
      for (const uint32_t id : PostOrder(root)) gathers += root.graph()->at(id).is(Op::kGather);
      EXPECT_EQ(gathers > 0, scale != 3);
      if (scale != 3) continue;
      const auto out = test::Run(*onnx, {Floats({2, 2}, {1, 2, 3, 4})});
      ASSERT_TRUE(out.ok()) << out.status();
      EXPECT_EQ((*out)[0].Values<float>(),
                (std::vector<float>{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}));
    }
  }
}

// Attributes that a node has are read or refused, never passed over.
TEST(Attributes, UnknownOnesAreRefused) {
  for (const std::string_view op : {"Abs", "Cast", "Elu", "QuantizeLinear", "Resize"}) {
    SCOPED_TRACE(op);
    OneNode node{op, 21, {{"unheard_of", int64_t{1}}, {"to", int64_t{1}}}, {false, true, true}};
    if (op != "Cast") node.attributes.erase("to");
    std::vector<HostTensor> inputs = {Floats({2}, {1, 2})};
    if (op == "QuantizeLinear") inputs.push_back(Floats({}, {1}));
    if (op == "Resize") {
      inputs.push_back(HostTensor::Of<float>({0}, std::initializer_list<float>{}));
      inputs.push_back(Floats({1}, {2}));
    }
    const absl::Status status = node(inputs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(status.message(), testing::HasSubstr("unheard_of"));
  }
}

}  // namespace
}  // namespace telegrad::onnx
