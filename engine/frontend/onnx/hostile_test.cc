// Models that are wrong on purpose: each ends in a message with node, operator and reason, within
// the budget. Graphs in each other and endless conditions are in control_test.cc, files outside of
// the model's folder in external_data_test.cc, the same on a server in tests/server/import_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/strings.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/test_model.h"

namespace telegrad::onnx {
namespace {

using test::Graph;
using test::ModelWriter;
using ::testing::HasSubstr;

void ExpectRefused(const ModelWriter& model, std::initializer_list<std::string_view> words) {
  const absl::Status status = ImportOnnx(model.File(13)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  for (const std::string_view word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(word)));
  }
}

ModelWriter OneInput() {
  ModelWriter out;
  out.Input("x", DType::kFloat32, {4});
  return out;
}

TEST(HostileModels, CutAtAnyByte) {
  const std::string file = OneInput()
                               .Initializer("w", HostTensor::Of<float>({4}, {1, 2, 3, 4}))
                               .Node("Add", {"x", "w"}, {"s"})
                               .Node("Softmax", {"s"}, {"y"}, {{"axis", int64_t{0}}})
                               .Output("y", DType::kFloat32, {4})
                               .File(13);
  ASSERT_TRUE(ImportOnnx(file).ok()) << ImportOnnx(file).status();
  for (size_t n = 0; n < file.size(); ++n) {
    const absl::Status status = ImportOnnx(file.substr(0, n)).status();
    EXPECT_FALSE(status.ok()) << "cut after " << n << " bytes";
    EXPECT_THAT(std::string(status.message()), HasSubstr("ONNX: "));
  }
}

TEST(HostileModels, NodesInACircleOrBeforeWhatTheyRead) {
  ExpectRefused(OneInput().Node("Relu", {"b"}, {"a"}).Node("Neg", {"a"}, {"b"}).Output("b"),
                {"the node of 'a' (Relu)", "'b' is not an input", "a result of a node before it"});
  ExpectRefused(OneInput().Node("Add", {"x", "y"}, {"y"}).Output("y"),
                {"the node of 'y' (Add)", "'y' is not an input"});
  ExpectRefused(OneInput().Node("Exp", {"a"}, {"y"}).Node("Log", {"x"}, {"a"}).Output("y"),
                {"the node of 'y' (Exp)", "'a' is not an input"});
}

TEST(HostileModels, NamesThatAreDefinedTwice) {
  ExpectRefused(OneInput().Node("Relu", {"x"}, {"x"}).Output("x"),
                {"(Relu)", "'x' is defined twice"});
  ExpectRefused(OneInput().Input("x", DType::kFloat32, {4}).Output("x"), {"'x'", "twice"});
  ExpectRefused(OneInput()
                    .Initializer("w", HostTensor::Of<float>({1}, {1}))
                    .Initializer("w", HostTensor::Of<float>({1}, {2}))
                    .Node("Add", {"x", "w"}, {"y"})
                    .Output("y"),
                {"'w' is defined twice"});
  ExpectRefused(OneInput().Node("Split", {"x"}, {"y", "y"}, {{"axis", int64_t{0}}}).Output("y"),
                {"(Split)", "'y' is defined twice"});
  // In a graph of its own a name hides that of the graph around it, but not its own.
  const Graph body{
      OneInput().Node("Neg", {"x"}, {"y"}).Node("Abs", {"x"}, {"y"}).Output("y").graph()};
  ExpectRefused(OneInput()
                    .Input("c", DType::kBool, {})
                    .Node("If", {"c"}, {"z"}, {{"then_branch", body}, {"else_branch", body}})
                    .Output("z"),
                {"(If)", "(Abs)", "'y' is defined twice"});
}

std::string Sparse(const Shape& dims, const std::vector<int64_t>& indices) {
  const auto count = static_cast<int64_t>(indices.size());
  const std::vector<float> ones(indices.size(), 1);
  std::string out;
  PutBytesField(field::kSparseValues, *WriteTensorFile(HostTensor::Of<float>({count}, ones), "w"),
                &out);
  PutBytesField(field::kSparseIndices,
                *WriteTensorFile(HostTensor::Of<int64_t>({count}, indices), ""), &out);
  for (const int64_t dim : dims)
    PutVarintField(field::kSparseDims, static_cast<uint64_t>(dim), &out);
  return out;
}

TEST(HostileModels, SparseTensorsWhoseElementsOverlap) {
  const auto with = [](const std::string& sparse) {
    return OneInput().RawSparseInitializer(sparse).Node("Add", {"x", "w"}, {"y"}).Output("y");
  };
  const auto onnx = ImportOnnx(with(Sparse({4}, {1, 3})).File(13));
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  ExpectRefused(with(Sparse({4}, {1, 1})), {"'w'", "two elements are given for one place"});
  ExpectRefused(with(Sparse({4}, {4})), {"'w'", "lies outside"});
  ExpectRefused(with(Sparse({4}, {-1})), {"'w'", "lies outside"});
  ExpectRefused(with(Sparse({-4}, {0})), {"'w'"});
  const absl::Status large =
      ImportOnnx(with(Sparse({int64_t{1} << 20, int64_t{1} << 20}, {0})).File(13)).status();
  EXPECT_FALSE(large.ok());
  EXPECT_THAT(std::string(large.message()), HasSubstr("'w'"));
}

// As many rounds as a number can say, of nothing, in each other.
TEST(HostileModels, LoopsWithoutEndSpendTheBudget) {
  const auto loop = [](const Graph& body) {
    return ModelWriter()
        .Input("i", DType::kInt64, {})
        .Input("c", DType::kBool, {})
        .Input("v", DType::kFloat32, {4})
        .Node("Identity", {"c"}, {"go"})
        .Node("Loop", {"most", "", "v"}, {"w"}, {{"body", body}})
        .Output("go", DType::kBool, {})
        .Output("w", DType::kFloat32, {4})
        .graph();
  };
  Graph body{ModelWriter()
                 .Input("i", DType::kInt64, {})
                 .Input("c", DType::kBool, {})
                 .Input("v", DType::kFloat32, {4})
                 .Node("Identity", {"c"}, {"go"})
                 .Output("go", DType::kBool, {})
                 .Output("v", DType::kFloat32, {4})
                 .graph()};
  for (int i = 0; i < 3; ++i) body = Graph{loop(body)};
  const std::string file = OneInput()
                               .Initializer("most", HostTensor::Of<int64_t>({}, {INT64_MAX}))
                               .Node("Loop", {"most", "", "x"}, {"y"}, {{"body", body}})
                               .Output("y")
                               .File(13);
  Budget::Limits limits;
  limits.steps = 100'000;
  limits.nodes = 100'000;
  Budget budget(limits);
  const absl::Status status = ImportOnnx(file, {}, &budget).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the node of 'y' (Loop)"));
  EXPECT_EQ(budget.bytes_held(), 0);
}

// Every cut and every changed byte of models whose sizes the run decides: an error, or a plan whose
// outputs have their shapes in slots of their own.
TEST(HostileModels, SizesOfTheRunInBrokenFiles) {
  const std::string file = OneInput()
                               .Input("k", DType::kInt64, {1})
                               .Node("NonZero", {"x"}, {"at"})
                               .Node("TopK", {"x", "k"}, {"v", "i"})
                               .Node("Unique", {"v"}, {"u"})
                               .Node("Concat", {"u", "x"}, {"y"}, {{"axis", int64_t{0}}})
                               .Output("at", DType::kInt64, {1, -1})
                               .Output("y", DType::kFloat32, {-1})
                               .File(13);
  const auto check = [](const std::string& bytes) {
    const auto onnx = ImportOnnx(bytes);
    if (!onnx.ok()) {
      EXPECT_THAT(std::string(onnx.status().message()), HasSubstr("ONNX: "));
      return false;
    }
    for (const OnnxValue& output : onnx->outputs) {
      if (output.kind != OnnxValue::Kind::kTensor || output.shape_slot < 0) continue;
      const Slot& shape = onnx->plan.slots[output.shape_slot];
      EXPECT_EQ(shape.dtype, DType::kInt64);
      EXPECT_EQ(shape.shape,
                Shape{static_cast<int64_t>(onnx->plan.slots[output.slot].shape.size())});
    }
    return true;
  };
  ASSERT_TRUE(check(file)) << ImportOnnx(file).status();
  for (size_t i = 0; i < file.size(); ++i) {
    EXPECT_FALSE(check(file.substr(0, i))) << "cut after " << i << " bytes";
    for (const int change : {1, 0x80, 0xff}) {
      std::string mutant = file;
      mutant[i] = static_cast<char>(mutant[i] ^ change);
      check(mutant);
    }
  }
}

// Bounds that multiply: each is storage, which is checked before anything is made of it.
TEST(HostileModels, BoundsThatAreTooLarge) {
  ModelWriter model;
  model.Input("x", DType::kFloat32, {1 << 20});
  model.Node("NonZero", {"x"}, {"at"});
  std::string last = "at";
  for (int i = 0; i < 3; ++i) {  // pairs of all pairs
    const std::string turned = StrCat("t", i), next = StrCat("p", i);
    model.Node("Cast", {last}, {StrCat("f", i)}, {{"to", int64_t{1}}});
    model.Node("Transpose", {StrCat("f", i)}, {turned});
    model.Node("MatMul", {turned, StrCat("f", i)}, {next});
    model.Node("NonZero", {next}, {StrCat("n", i)});
    last = StrCat("n", i);
  }
  const absl::Status status = ImportOnnx(model.Output(last).File(13)).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("ONNX: "));
}

}  // namespace
}  // namespace telegrad::onnx
