// Graphs in nodes, functions of models, sequences and optionals, and values that decide shapes.
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

HostTensor Floats(std::initializer_list<float> values) {
  return HostTensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}
HostTensor Number(int64_t value) { return HostTensor::Of<int64_t>({}, {value}); }
HostTensor Bool(bool value) { return {DType::kBool, {}, std::string(1, value ? '\1' : '\0')}; }

std::shared_ptr<const OnnxData> Given(const HostTensor& tensor) {
  return std::make_shared<const OnnxData>(
      OnnxData{.kind = OnnxData::Kind::kTensor, .tensor = tensor});
}

// Imports with all inputs' values given, and runs.
struct Ran {
  absl::Status status;
  std::vector<std::string> guards;
  std::vector<HostTensor> outputs;
};
Ran RunGiven(const std::string& file,
             const std::vector<std::pair<std::string, HostTensor>>& inputs) {
  ImportOptions options;
  std::vector<HostTensor> bound;
  for (const auto& [name, value] : inputs) {
    options.values[name] = Given(value);
    bound.push_back(value);
  }
  const auto onnx = ImportOnnx(file, options);
  if (!onnx.ok()) return {onnx.status(), {}, {}};
  auto outputs = test::Run(*onnx, bound);
  if (!outputs.ok()) return {outputs.status(), {}, {}};
  return {absl::OkStatus(), onnx->guards, *outputs};
}

std::string IfModel() {
  return ModelWriter()
      .Input("x", DType::kFloat32, {3})
      .Input("c", DType::kBool, {})
      .Node("If", {"c"}, {"y"},
            {{"then_branch", Graph{ModelWriter().Node("Neg", {"x"}, {"a"}).Output("a").graph()}},
             {"else_branch", Graph{ModelWriter().Node("Abs", {"x"}, {"b"}).Output("b").graph()}}})
      .Output("y")
      .File(13);
}

TEST(Control, AnIfTakesTheBranchOfAGivenConditionAndGuardsIt) {
  for (const bool taken : {true, false}) {
    const Ran ran = RunGiven(IfModel(), {{"x", Floats({-1, 2, 3})}, {"c", Bool(taken)}});
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_THAT(ran.guards, ElementsAre("c"));
    EXPECT_THAT(ran.outputs[0].Values<float>(),
                taken ? ElementsAre(1, -2, -3) : ElementsAre(1, 2, 3));
  }
}

TEST(Control, AnIfWithoutAGivenConditionSelects) {
  const auto onnx = ImportOnnx(IfModel());
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  EXPECT_TRUE(onnx->guards.empty());
  for (const bool taken : {true, false}) {
    const auto got = test::Run(*onnx, {Floats({-1, 2, 3}), Bool(taken)});
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_THAT((*got)[0].Values<float>(), taken ? ElementsAre(1, -2, -3) : ElementsAre(1, 2, 3));
  }
}

// v = v + v while v < limit; each v is a result too.
std::string LoopModel(bool endless = false) {
  ModelWriter body;
  body.Input("i", DType::kInt64, {}).Input("on", DType::kBool, {}).Input("v", DType::kFloat32, {});
  body.Node("Add", {"v", "v"}, {"w"});
  if (endless) {
    body.Node("Identity", {"on"}, {"again"});
  } else {
    body.Node("Less", {"w", "limit"}, {"again"});
  }
  body.Node("Identity", {"w"}, {"row"}).Output("again").Output("w").Output("row");
  return ModelWriter()
      .Input("v0", DType::kFloat32, {})
      .Input("limit", DType::kFloat32, {})
      .Initializer("true", Bool(true))
      .Node("Loop", {"", "true", "v0"}, {"last", "rows"}, {{"body", Graph{body.graph()}}})
      .Output("last")
      .Output("rows")
      .File(13);
}

TEST(Control, ALoopEndsByItsConditionAndItsRowsHaveThatLength) {
  const auto scalar = [](float v) { return HostTensor::Of<float>({}, {v}); };
  for (const float limit : {10.0f, 100.0f}) {
    const Ran ran = RunGiven(LoopModel(), {{"v0", scalar(3)}, {"limit", scalar(limit)}});
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_THAT(ran.guards, ElementsAre("limit", "v0"));
    if (limit == 10) {
      EXPECT_THAT(ran.outputs[0].Values<float>(), ElementsAre(12));
      EXPECT_THAT(ran.outputs[1].Values<float>(), ElementsAre(6, 12));
    } else {
      EXPECT_THAT(ran.outputs[1].Values<float>(), ElementsAre(6, 12, 24, 48, 96, 192));
    }
  }
  const absl::Status without = ImportOnnx(LoopModel()).status();
  EXPECT_EQ(without.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(without.ToString(), HasSubstr("'limit'"));
  EXPECT_THAT(without.ToString(), HasSubstr("give values of inputs"));
}

TEST(Control, ALoopWithoutEndIsRefused) {
  const absl::Status status = ImportOnnx(LoopModel(/*endless=*/true)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("(Loop)"));
}

TEST(Control, AScanGoesBackwardToo) {
  ModelWriter body;
  body.Input("s", DType::kFloat32, {}).Input("e", DType::kFloat32, {});
  body.Node("Add", {"s", "e"}, {"t"}).Node("Identity", {"t"}, {"row"}).Output("t").Output("row");
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {3})
                               .Initializer("zero", HostTensor::Of<float>({}, {0}))
                               .Node("Scan", {"zero", "x"}, {"sum", "rows"},
                                     {{"body", Graph{body.graph()}},
                                      {"num_scan_inputs", int64_t{1}},
                                      {"scan_input_directions", std::vector<int64_t>{1}}})
                               .Output("sum")
                               .Output("rows")
                               .File(13);
  const Ran ran = RunGiven(file, {{"x", Floats({1, 2, 4})}});
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_TRUE(ran.guards.empty());
  EXPECT_THAT(ran.outputs[0].Values<float>(), ElementsAre(7));
  EXPECT_THAT(ran.outputs[1].Values<float>(), ElementsAre(4, 6, 7));
}

TEST(Control, ASequenceIsBuiltAndJoined) {
  const std::string file = ModelWriter()
                               .Input("a", DType::kFloat32, {2})
                               .Input("b", DType::kFloat32, {1})
                               .Initializer("at", Number(0))
                               .Node("SequenceConstruct", {"a"}, {"s"})
                               .Node("SequenceInsert", {"s", "b", "at"}, {"t"})
                               .Node("ConcatFromSequence", {"t"}, {"y"}, {{"axis", int64_t{0}}})
                               .Node("SequenceLength", {"t"}, {"n"})
                               .Output("y")
                               .Output("n")
                               .File(13);
  const Ran ran = RunGiven(file, {{"a", Floats({1, 2})}, {"b", Floats({3})}});
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_THAT(ran.outputs[0].Values<float>(), ElementsAre(3, 1, 2));
  EXPECT_THAT(ran.outputs[1].Values<int64_t>(), ElementsAre(2));
}

// In a loop each could hold the one before, as deep as the loop is long.
TEST(Control, ASequenceOfSequencesIsRefused) {
  ModelWriter writer;
  writer.Input("a", DType::kFloat32, {2}).Node("SequenceConstruct", {"a"}, {"s"});
  ModelWriter body;
  body.Input("e", DType::kFloat32, {2}).Output("s");
  const std::vector<ModelWriter> models = {
      ModelWriter(writer).Node("SequenceConstruct", {"s"}, {"y"}),
      ModelWriter(writer).Node("SequenceInsert", {"s", "s"}, {"y"}),
      ModelWriter(writer).Node("SequenceMap", {"s"}, {"y"}, {{"body", Graph{body.graph()}}})};
  for (ModelWriter model : models) {
    const absl::Status status = ImportOnnx(model.Output("y").File(17)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(status.ToString(), HasSubstr("a sequence of sequences is not supported"));
  }
}

TEST(Control, GrowingASequenceSpendsItsLength) {
  ModelWriter writer;
  writer.Input("a", DType::kFloat32, {1}).Node("SequenceConstruct", {"a"}, {"s0"});
  for (int i = 0; i < 300; ++i) {
    writer.Node("SequenceInsert", {StrCat("s", i), "a"}, {StrCat("s", i + 1)});
  }
  const std::string file = writer.Node("SequenceLength", {"s300"}, {"n"}).Output("n").File(13);
  EXPECT_TRUE(ImportOnnx(file).ok());
  Budget small(Budget::Limits{.steps = 20'000});
  EXPECT_EQ(ImportOnnx(file, {}, &small).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Control, AValueThatDecidesAShapeIsComputedFromGivenInputs) {
  // y = reshape(x, [n - 1, -1]): only n becomes a guard.
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {6})
                               .Input("n", DType::kInt64, {1})
                               .Initializer("one", HostTensor::Of<int64_t>({1}, {1}))
                               .Initializer("rest", HostTensor::Of<int64_t>({1}, {-1}))
                               .Node("Sub", {"n", "one"}, {"m"})
                               .Node("Concat", {"m", "rest"}, {"to"}, {{"axis", int64_t{0}}})
                               .Node("Reshape", {"x", "to"}, {"y"})
                               .Output("y")
                               .File(13);
  const HostTensor x = Floats({1, 2, 3, 4, 5, 6});
  for (const int64_t n : {3, 4}) {
    const Ran ran = RunGiven(file, {{"x", x}, {"n", HostTensor::Of<int64_t>({1}, {n})}});
    ASSERT_TRUE(ran.status.ok()) << ran.status;
    EXPECT_THAT(ran.guards, ElementsAre("n"));
    EXPECT_THAT(ran.outputs[0].shape, ElementsAre(n - 1, 6 / (n - 1)));
  }
}

TEST(Control, DataDependentShapesFollowTheGivenValues) {
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {4})
                               .Node("NonZero", {"x"}, {"at"})
                               .Node("Unique", {"x"}, {"u", "first", "inverse", "counts"})
                               .Output("at")
                               .Output("u")
                               .Output("inverse")
                               .Output("counts")
                               .File(13);
  const Ran ran = RunGiven(file, {{"x", Floats({5, 0, 2, 5})}});
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_THAT(ran.outputs[0].Values<int64_t>(), ElementsAre(0, 2, 3));
  EXPECT_THAT(ran.outputs[1].Values<float>(), ElementsAre(0, 2, 5));
  EXPECT_THAT(ran.outputs[2].Values<int64_t>(), ElementsAre(2, 0, 1, 2));
  EXPECT_THAT(ran.outputs[3].Values<int64_t>(), ElementsAre(1, 1, 2));
}

TEST(Control, StringsAreMovedAndCompared) {
  OnnxData words{.kind = OnnxData::Kind::kStrings, .strings = {{4}, {"b", "a", "b", "c"}}};
  std::string info, tensor, type, dims, dim;
  PutVarintField(field::kElemType, 8, &tensor);
  PutBytesField(field::kTensorType, tensor, &type);
  PutBytesField(field::kValueName, "x", &info);
  PutBytesField(field::kValueType, type, &info);
  const std::string file = ModelWriter()
                               .RawInput(info)
                               .Initializer("at", HostTensor::Of<int64_t>({2}, {3, 0}))
                               .Initializer("shape", HostTensor::Of<int64_t>({2}, {2, 1}))
                               .Node("Gather", {"x", "at"}, {"g"}, {{"axis", int64_t{0}}})
                               .Node("Reshape", {"g", "shape"}, {"y"})
                               .Node("Unique", {"x"}, {"u"})
                               .Node("Equal", {"x", "x"}, {"same"})
                               .Output("y")
                               .Output("u")
                               .Output("same")
                               .File(19);
  ImportOptions options;
  options.values["x"] = std::make_shared<const OnnxData>(words);
  const auto onnx = ImportOnnx(file, options);
  ASSERT_TRUE(onnx.ok()) << onnx.status();
  EXPECT_THAT(onnx->guards, ElementsAre("x"));
  EXPECT_THAT(onnx->outputs[0].fixed->strings.values, ElementsAre("c", "b"));
  EXPECT_THAT(onnx->outputs[0].fixed->strings.shape, ElementsAre(2, 1));
  EXPECT_THAT(onnx->outputs[1].fixed->strings.values, ElementsAre("a", "b", "c"));
  EXPECT_EQ(onnx->outputs[2].kind, OnnxValue::Kind::kTensor);
}

// A function f(x) = x * factor, with an attribute that a node in it refers to.
std::string FunctionModel(std::string_view attribute, std::string_view calls = "f") {
  std::string reference, constant, scaled, function, opset;
  PutBytesField(field::kAttributeName, "value_float", &reference);
  PutBytesField(field::kRefAttrName, "factor", &reference);
  PutVarintField(field::kAttributeType, 1, &reference);
  PutBytesField(field::kNodeOutput, "k", &constant);
  PutBytesField(field::kOpType, "Constant", &constant);
  PutBytesField(field::kNodeAttribute, reference, &constant);
  PutBytesField(field::kNodeInput, "x", &scaled);
  PutBytesField(field::kNodeInput, calls == "f" ? "k" : "x", &scaled);
  PutBytesField(field::kNodeOutput, "y", &scaled);
  PutBytesField(field::kOpType, calls == "f" ? "Mul" : "f", &scaled);
  if (calls != "f") PutBytesField(field::kNodeDomain, "my", &scaled);
  PutVarintField(field::kOpsetVersion, 13, &opset);
  PutBytesField(field::kFunctionName, "f", &function);
  PutBytesField(field::kFunctionDomain, "my", &function);
  PutBytesField(field::kFunctionInput, "x", &function);
  if (calls != "f") PutBytesField(field::kFunctionInput, "unused", &function);
  PutBytesField(field::kFunctionOutput, "y", &function);
  PutBytesField(field::kFunctionAttribute, "factor", &function);
  if (calls == "f") PutBytesField(field::kFunctionNode, constant, &function);
  PutBytesField(field::kFunctionNode, scaled, &function);
  PutBytesField(field::kFunctionOpsetImport, opset, &function);
  std::string file = ModelWriter()
                         .Input("x", DType::kFloat32, {2})
                         .Node("f", {"x"}, {"z"}, {{std::string(attribute), 2.5f}}, "my")
                         .Output("z")
                         .File(13);
  PutBytesField(field::kFunctions, function, &file);
  return file;
}

TEST(Control, AModelsOwnFunctionIsCalledWithItsAttributes) {
  const Ran ran = RunGiven(FunctionModel("factor"), {{"x", Floats({2, 4})}});
  ASSERT_TRUE(ran.status.ok()) << ran.status;
  EXPECT_THAT(ran.outputs[0].Values<float>(), ElementsAre(5, 10));
  const Ran wrong = RunGiven(FunctionModel("nope"), {{"x", Floats({2, 4})}});
  EXPECT_THAT(wrong.status.ToString(), HasSubstr("no attribute 'nope'"));
}

TEST(Control, AFunctionThatCallsItselfIsRefused) {
  const Ran ran = RunGiven(FunctionModel("factor", "itself"), {{"x", Floats({2, 4})}});
  EXPECT_EQ(ran.status.code(), absl::StatusCode::kResourceExhausted) << ran.status;
  EXPECT_THAT(ran.status.ToString(), HasSubstr("nested deeper"));
}

TEST(Control, AThousandGraphsInEachOtherAreRefused) {
  std::string graph = ModelWriter().Node("Neg", {"x"}, {"y"}).Output("y").graph();
  for (int i = 0; i < 1000; ++i) {
    graph =
        ModelWriter().Node("If", {"c"}, {"y"}, {{"then_branch", Graph{graph}}}).Output("y").graph();
  }
  const std::string file = ModelWriter()
                               .Input("c", DType::kBool, {})
                               .Node("If", {"c"}, {"y"}, {{"then_branch", Graph{graph}}})
                               .Output("y")
                               .File(13);
  const absl::Status status = ImportOnnx(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("nested deeper than 32"));
}

TEST(Control, EveryNodeThatIsNotSupportedIsToldAtOnce) {
  const std::string inner = ModelWriter().Node("Inner", {"x"}, {"q"}).Output("q").graph();
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {2})
                               .Input("c", DType::kBool, {})
                               .Node("Foo", {"x"}, {"a"})
                               .Node("Foo", {"a"}, {"b"})
                               .Node("Bar", {"b"}, {"d"}, {}, "my.domain")
                               .Node("If", {"c"}, {"e"}, {{"then_branch", Graph{inner}}})
                               .Node("Relu", {"d"}, {"y"})
                               .Output("y")
                               .File(13);
  const absl::Status status = ImportOnnx(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  for (const char* part : {"4 nodes", "Foo (opset 13): 2 nodes, of 'a', of 'b'",
                           "my.domain.Bar (opset 1): 1 node", "Inner (opset 13)"}) {
    EXPECT_THAT(status.ToString(), HasSubstr(part));
  }
  EXPECT_THAT(status.ToString(), Not(HasSubstr("Relu")));
}

TEST(Control, AnAttributeThatNobodyReadsIsToldWithTheOthers) {
  const std::string file = ModelWriter()
                               .Input("x", DType::kFloat32, {2})
                               .Node("Relu", {"x"}, {"a"}, {{"slope", 1.0f}})
                               .Node("Neg", {"a"}, {"b"})
                               .Node("Abs", {"x"}, {"d"}, {{"how", int64_t{1}}})
                               .Output("b")
                               .File(13);
  const absl::Status status = ImportOnnx(file).status();
  for (const char* part : {"2 nodes", "Relu", "'slope'", "Abs", "'how'"}) {
    EXPECT_THAT(status.ToString(), HasSubstr(part));
  }
}

// Whether importing needs more memory than so many MiB; it holds none when it has ended.
bool NeedsMore(const std::string& file, const ImportOptions& options, int64_t mib) {
  Budget budget(Budget::Limits{.bytes = mib << 20});
  const absl::Status status = ImportOnnx(file, options, &budget).status();
  EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(budget.bytes_held(), 0);
  return !status.ok();
}

// A shape that is the largest of many numbers: they are copied for the interpreter, and by it.
TEST(Control, WhatComputesAShapeIsCharged) {
  const int64_t n = 1 << 20;
  const std::string file =
      ModelWriter()
          .Initializer("many", HostTensor::Of<int64_t>({n}, std::vector<int64_t>(n, 3)))
          .Input("x", DType::kFloat32, {1})
          .Node("ReduceMax", {"many"}, {"shape"}, {{"axes", std::vector<int64_t>{0}}})
          .Node("Expand", {"x", "shape"}, {"y"})
          .Output("y")
          .File(13);
  EXPECT_TRUE(NeedsMore(file, {}, 12));
  EXPECT_FALSE(NeedsMore(file, {}, 32));
}

TEST(Control, PartsOfStringsAreCharged) {
  std::string words;
  for (int i = 0; i < 100'000; ++i) words += "a ";
  std::string info, tensor, type;
  PutVarintField(field::kElemType, 8, &tensor);
  PutBytesField(field::kTensorType, tensor, &type);
  PutBytesField(field::kValueName, "x", &info);
  PutBytesField(field::kValueType, type, &info);
  const std::string file =
      ModelWriter().RawInput(info).Node("StringSplit", {"x"}, {"y", "n"}).Output("n").File(20);
  ImportOptions options;
  options.values["x"] = std::make_shared<const OnnxData>(
      OnnxData{.kind = OnnxData::Kind::kStrings, .strings = {{1}, {words}}});
  EXPECT_TRUE(NeedsMore(file, options, 5));
  EXPECT_FALSE(NeedsMore(file, options, 64));
}

}  // namespace
}  // namespace telegrad::onnx
