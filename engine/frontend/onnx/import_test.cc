// The known models, import-time shapes, options and what is refused.
#include "engine/frontend/onnx/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/test_model.h"

namespace telegrad::onnx {
namespace {

using test::ModelWriter;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Load(std::string_view path) {
  std::ifstream in(StrCat("tests/data/onnx/", path), std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  EXPECT_TRUE(in.good()) << path;
  return out.str();
}

TEST(Import, MnistValues) {
  const std::string file = Load("mnist_8/model.onnx");
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  ASSERT_EQ(onnx->inputs.size(), 1u);
  EXPECT_EQ(onnx->inputs[0].name, "Input3");
  ASSERT_EQ(onnx->outputs.size(), 1u);
  EXPECT_EQ(onnx->outputs[0].name, "Plus214_Output_0");
  for (int set = 0; set < 3; ++set) {
    const std::string folder = StrCat("mnist_8/test_data_set_", set, "/");
    const auto input = ReadTensorFile(Load(folder + "input_0.pb"));
    const auto expected = ReadTensorFile(Load(folder + "output_0.pb"));
    ASSERT_TRUE(input.ok() && expected.ok());
    const auto got = test::Run(*onnx, {*input});
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ((*got)[0].shape, expected->shape);
    const std::vector<double> a = (*got)[0].AsDoubles(), b = expected->AsDoubles();
    for (size_t i = 0; i < b.size(); ++i) {
      EXPECT_NEAR(a[i], b[i], 1e-3 + 1e-3 * std::abs(b[i])) << "set " << set << " class " << i;
    }
  }
}

TEST(Import, SuperResolutionStructure) {
  const std::string file = Load("super_resolution_10/model.onnx");
  const auto refused = ImportOnnx(file);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().ToString(), HasSubstr("batch_size"));
  ImportOptions options;
  options.dims["batch_size"] = 1;
  const auto onnx = ImportOnnx(file, options);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  ASSERT_EQ(onnx->inputs.size(), 1u);
  EXPECT_THAT(onnx->plan.slots[onnx->inputs[0].slot].shape, ElementsAre(1, 1, 224, 224));
  ASSERT_EQ(onnx->outputs.size(), 1u);
  EXPECT_THAT(onnx->plan.slots[onnx->outputs[0].slot].shape, ElementsAre(1, 1, 672, 672));
  const auto expected = ReadTensorFile(Load("super_resolution_10/test_data_set_0/output_0.pb"));
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(onnx->plan.slots[onnx->outputs[0].slot].shape, expected->shape);
  EXPECT_EQ(onnx->weights.size(), 8u);
}

TEST(Import, WeightsAreStateSlotsAndScalarsAreNot) {
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {2})
                               .Initializer("w", HostTensor::Of<float>({2}, {10, 20}))
                               .Initializer("one", HostTensor::Of<float>({1}, {1}))
                               .Initializer("unused", HostTensor::Of<float>({3}, {1, 2, 3}))
                               .Node("Mul", {"x", "w"}, {"a"})
                               .Node("Add", {"a", "one"}, {"y"})
                               .Output("y")
                               .File(13);
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  ASSERT_EQ(onnx->weights.size(), 1u);
  EXPECT_EQ(onnx->Value(onnx->weights[0]), HostTensor::Of<float>({2}, {10, 20}));
  EXPECT_EQ(onnx->plan.slots[onnx->weights[0].slot].name, "w");
  EXPECT_EQ(onnx->plan.slots[onnx->weights[0].slot].role, SlotRole::kState);
  EXPECT_EQ(onnx->plan.slots.size(), 3u);
  const auto got = test::Run(*onnx, {HostTensor::Of<float>({2}, {1, 2})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].Values<float>(), ElementsAre(11, 41));
}

TEST(Import, ShapesComputedByTheModelFold) {
  // y = reshape(x, [x.shape[0], 2 * (7 / 2), -1])
  const std::string file =
      ModelWriter()
          .Input("x", DType::kFloat32, {-1, 12})
          .Initializer("zero", HostTensor::Of<int64_t>({}, {0}))
          .Initializer("seven", HostTensor::Of<int64_t>({}, {7}))
          .Initializer("two", HostTensor::Of<int64_t>({}, {2}))
          .Initializer("front", HostTensor::Of<int64_t>({1}, {0}))
          .Initializer("rest", HostTensor::Of<int64_t>({1}, {-1}))
          .Node("Shape", {"x"}, {"shape"})
          .Node("Gather", {"shape", "zero"}, {"n"}, {{"axis", int64_t{0}}})
          .Node("Unsqueeze", {"n", "front"}, {"n1"})
          .Node("Div", {"seven", "two"}, {"three"})
          .Node("Mul", {"three", "two"}, {"six"})
          .Node("Unsqueeze", {"six", "front"}, {"six1"})
          .Node("Concat", {"n1", "six1", "rest"}, {"to"}, {{"axis", int64_t{0}}})
          .Node("Reshape", {"x", "to"}, {"y"})
          .Output("y")
          .File(13);
  ImportOptions options;
  options.dims["N"] = 5;
  const auto onnx = ImportOnnx(file, options);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  EXPECT_THAT(onnx->plan.slots[onnx->outputs[0].slot].shape, ElementsAre(5, 6, 2));
  EXPECT_TRUE(onnx->weights.empty());
  options.dims.clear();
  options.input_shapes["x"] = {3, 12};
  const auto other = ImportOnnx(file, options);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->plan.slots[other->outputs[0].slot].shape, ElementsAre(3, 6, 2));
}

TEST(Import, AnInputOrWeightMayBeAnOutput) {
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {2})
                               .Initializer("w", HostTensor::Of<float>({2}, {3, 4}))
                               .Output("x")
                               .Output("w")
                               .File(13);
  const auto onnx = ImportOnnx(file);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  EXPECT_EQ(onnx->outputs[0].name, "x");
  const auto got = test::Run(*onnx, {HostTensor::Of<float>({2}, {1, 2})});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT((*got)[0].Values<float>(), ElementsAre(1, 2));
  EXPECT_THAT((*got)[1].Values<float>(), ElementsAre(3, 4));
}

absl::Status Import(const ModelWriter& writer, int64_t opset = 13,
                    const ImportOptions& options = {}) {
  return ImportOnnx(writer.File(opset), options).status();
}

TEST(Import, Refuses) {
  const auto one = [](std::string_view op, const test::Attributes& attributes = {},
                      std::string_view domain = "") {
    return ModelWriter()
        .Input("x", DType::kFloat32, {2, 3})
        .Node(op, {"x"}, {"y"}, attributes, domain)
        .Output("y");
  };
  const auto refuses = [](const absl::Status& status, absl::StatusCode code,
                          const std::vector<std::string>& words) {
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) EXPECT_THAT(status.ToString(), HasSubstr(word));
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  constexpr auto kUnknown = absl::StatusCode::kUnimplemented;
  EXPECT_TRUE(Import(one("Relu")).ok()) << Import(one("Relu"));
  refuses(Import(one("Nope")), kUnknown, {"1 node", "Nope (opset 13)", "'y'"});
  refuses(Import(one("Relu", {{"slope", 1.0f}})), kUnknown, {"slope", "Relu"});
  refuses(Import(one("Relu", {}, "com.microsoft")), kUnknown, {"com.microsoft"});
  refuses(Import(one("Relu"), 29), kUnknown, {"opset 29"});
  refuses(Import(one("Relu"), 29), kUnknown, {"opset 29"});
  refuses(Import(one("Add")), kBad, {"has 1 inputs, expected 2"});
  refuses(Import(one("Concat")), kBad, {"'axis' is missing"});
  refuses(Import(one("Softmax", {{"axis", 1.0f}})), kBad, {"'axis' is of another type"});
  refuses(Import(one("Softmax", {{"axis", int64_t{2}}})), kBad, {"axis 2"});
  refuses(Import(one("Transpose", {{"perm", std::vector<int64_t>{0, 0}}})), kBad, {"permute"});
  refuses(Import(ModelWriter().Node("Relu", {"x"}, {"y"}).Output("y")), kBad, {"'x'"});
  refuses(Import(ModelWriter().Input("x", DType::kFloat32, {2}).Output("z")), kBad, {"'z'"});
  refuses(Import(ModelWriter().Input("x", DType::kFloat32, {2})), kBad, {"no outputs"});
  refuses(Import(one("Relu").Node("Relu", {"x"}, {"y"})), kBad, {"'y' is defined twice"});
  refuses(Import(ModelWriter()
                     .Input("x", DType::kFloat32, {4})
                     .Input("s", DType::kInt64, {2})
                     .Node("Reshape", {"x", "s"}, {"y"})
                     .Output("y")),
          kUnknown, {"'s'", "when the model runs"});
  ImportOptions options;
  options.dims["M"] = 2;
  refuses(Import(one("Relu"), 13, options), kBad, {"'M'"});
  options = {};
  options.input_shapes["xx"] = {2};
  refuses(Import(one("Relu"), 13, options), kBad, {"'xx'"});
  options = {};
  options.input_shapes["x"] = {-2};
  refuses(Import(one("Relu"), 13, options), kBad, {"input 'x'"});
  refuses(ImportOnnx("").status(), kBad, {"graph"});
  refuses(ImportOnnx("hello").status(), kBad, {"ONNX"});
}

TEST(Import, ResultsThatAnOperatorDoesNotHaveAreRefused) {
  const auto status = Import(
      ModelWriter()
          .Input("x", DType::kFloat32, {1, 1, 4})
          .Node("AveragePool", {"x"}, {"y", "i"}, {{"kernel_shape", std::vector<int64_t>{2}}})
          .Output("y"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
}

TEST(Import, SurvivesDamage) {
  const std::vector<std::string> files = {
      Load("mnist_8/model.onnx"),
      ModelWriter()
          .Input("x", DType::kFloat32, {2, 4, 6, 6})
          .Initializer("w", HostTensor{DType::kFloat32, {4, 2, 3, 3}, std::string(288, '\1')})
          .Initializer("axes", HostTensor::Of<int64_t>({1}, {0}))
          .Node("Conv", {"x", "w"}, {"c"},
                {{"group", int64_t{2}},
                 {"pads", std::vector<int64_t>{1, 0, 2, 1}},
                 {"strides", std::vector<int64_t>{2, 1}}})
          .Node("AveragePool", {"c"}, {"p"},
                {{"kernel_shape", std::vector<int64_t>{2, 2}},
                 {"auto_pad", std::string("SAME_LOWER")}})
          .Node("Shape", {"p"}, {"s"})
          .Node("Gather", {"s", "axes"}, {"n"})
          .Node("Concat", {"n", "n"}, {"nn"}, {{"axis", int64_t{0}}})
          .Node("ReduceMean", {"p"}, {"r"}, {{"axes", std::vector<int64_t>{1, 2, 3}}})
          .Node("Unsqueeze", {"r", "axes"}, {"u"})
          .Node("Softmax", {"u"}, {"y"}, {{"axis", int64_t{1}}})
          .Node("Flatten", {"y"}, {"z"})
          .Output("z")
          .File(13)};
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  for (const std::string& file : files) {
    ASSERT_TRUE(ImportOnnx(file).ok()) << ImportOnnx(file).status();
    int accepted = 0;
    for (int round = 0; round < 3000; ++round) {
      std::string bad = file;
      if (round % 8 == 0) bad.resize(random() % bad.size());
      // Most of a model is weights; the interesting part is hit by aiming at both ends.
      const size_t window = std::min<size_t>(bad.size(), 1500);
      for (size_t i = 0; i < 1 + random() % 3 && window > 0; ++i) {
        const size_t at = random() % window;
        bad[random() % 2 == 0 ? at : bad.size() - 1 - at] ^= static_cast<char>(1 << random() % 8);
      }
      accepted += ImportOnnx(bad).ok();
    }
    EXPECT_GT(accepted, 0);
    EXPECT_LT(accepted, 3000);
  }
}

TEST(Operators, AreFound) {
  for (const Operator& row : AllOperators()) EXPECT_EQ(FindOperator("", row.name), &row);
  EXPECT_EQ(FindOperator("", "Nope"), nullptr);
  EXPECT_EQ(FindOperator("", ""), nullptr);
}

}  // namespace
}  // namespace telegrad::onnx
