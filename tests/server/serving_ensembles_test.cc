// Ensembles: their steps, those of inner ensembles too, become one graph, which is made again
// when a part is loaded again. Steps that do not fit are refused with an error that names the
// step.
#include "tests/server/ensemble_config.h"
#include "tests/server/served_models.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServingEnsemblesTest : public ServingTest {
 protected:
  // From `in` to `out`, both of four floats behind a batch of at most eight.
  void WriteEnsemble(const std::string& name, const std::string& steps,
                     const std::string& max_batch = "8") {
    std::filesystem::create_directories(models_.path() / name / "1");
    WriteFile(std::filesystem::path(name) / "config.pbtxt",
              EnsembleConfig("TYPE_FP32", "4", steps, "max_batch_size: " + max_batch));
  }
  absl::StatusOr<std::vector<float>> Run(const std::string& model, int64_t rows = 1) {
    std::vector<float> values(static_cast<size_t>(rows) * 4);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    inference::ModelInferRequest request = Floats(model, {rows, 4}, values);
    request.mutable_inputs(0)->set_name("in");
    TG_ASSIGN_OR_RETURN(const auto answer, Infer(request));
    EXPECT_EQ(answer.outputs(0).name(), "out");
    return Values<float>(answer);
  }
  void ExpectReason(const std::string& model, const std::string& part) {
    const auto rows = Loaded(model);
    ASSERT_EQ(rows.size(), 1u) << model;
    EXPECT_NE(rows[0].state(), "READY") << model;
    EXPECT_THAT(rows[0].reason(), HasSubstr(part)) << model;
  }
};

TEST_F(ServingEnsemblesTest, StepsAreOneRun) {
  WriteModel("add", AddModel(10));
  WriteModel("scale", ScaleModel(3));
  // In another order than they are run in.
  WriteEnsemble("both", Step("scale", "between", "out") + Step("add", "in", "between"));
  StartServing();
  ASSERT_TRUE(BecomesReady("both")) << Loaded("both")[0].reason();
  ASSERT_TRUE(BecomesReady("add"));
  const double before = Stat("telegrad_runs_total");
  const auto values = Run("both", 2);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(17, 19, 21, 23, 25, 27, 29, 31));
  EXPECT_EQ(Stat("telegrad_runs_total"), before + 1);
  EXPECT_EQ(Statistics("both").execution_count(), 1u);
  EXPECT_EQ(Statistics("add").execution_count(), 0u);

  grpc::ClientContext context;
  inference::ModelConfigRequest request;
  inference::ModelConfigResponse config;
  request.set_name("both");
  ASSERT_TRUE(stub_->ModelConfig(&context, request, &config).ok());
  EXPECT_EQ(config.config().platform(), "ensemble");
  ASSERT_EQ(config.config().ensemble_scheduling().step_size(), 2);
  EXPECT_EQ(config.config().ensemble_scheduling().step(0).input_map().at("x"), "between");
}

TEST_F(ServingEnsemblesTest, BranchesInnerEnsemblesAndTensorsThatNobodyTakes) {
  WriteModel("add", AddModel(10));
  WriteModel("scale", ScaleModel(3));
  WriteModel("sum", onnx::test::ModelWriter()
                        .Input("a", DType::kFloat32, {-1, 4})
                        .Input("b", DType::kFloat32, {-1, 4})
                        .Output("sum", DType::kFloat32, {-1, 4})
                        .Output("difference", DType::kFloat32, {-1, 4})
                        .Node("Add", {"a", "b"}, {"sum"})
                        .Node("Sub", {"a", "b"}, {"difference"})
                        .File(13));
  WriteEnsemble("inner", Step("add", "in", "t") + Step("scale", "t", "out"));
  WriteEnsemble("outer",
                StrCat("step { model_name: 'inner' ", Pair("input_map", "in", "in"),
                       Pair("output_map", "out", "t"), "} ", Step("add", "in", "u"),
                       "step { model_name: 'sum' ", Pair("input_map", "a", "t"),
                       Pair("input_map", "b", "u"), Pair("output_map", "sum", "out"), "} "));
  StartServing();
  ASSERT_TRUE(BecomesReady("outer")) << Loaded("outer")[0].reason();
  const auto values = Run("outer");  // 2 (x + 10) - 3 + x + 10
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_THAT(*values, ElementsAre(27, 30, 33, 36));
}

TEST_F(ServingEnsemblesTest, FollowTheirParts) {
  WriteModel("add", AddModel(10));
  WriteEnsemble("inner", Step("add", "in", "out"));
  WriteEnsemble("outer", StrCat("step { model_name: 'inner' ", Pair("input_map", "in", "in"),
                                Pair("output_map", "out", "out"), "} "));
  StartServing();
  for (const char* const name : {"inner", "outer"}) {
    ASSERT_TRUE(BecomesReady(name)) << Loaded(name)[0].reason();
    EXPECT_EQ((*Run(name))[0], 10);
  }
  WriteModel("add", AddModel(20));
  ASSERT_TRUE(Load("add").ok());
  for (const char* const name : {"inner", "outer"}) {
    // It is loaded behind the part, in the background.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while ((*Run(name))[0] != 20) ASSERT_LT(std::chrono::steady_clock::now(), deadline) << name;
  }
  // Without its part, it serves on; and with `unload_dependents` that goes, too.
  ASSERT_TRUE(Unload("add").ok());
  EXPECT_EQ((*Run("outer"))[0], 20);
}

TEST_F(ServingEnsemblesTest, UnloadingTakesPartsAlongThatNobodyElseHas) {
  WriteModel("add", AddModel(10));
  WriteModel("scale", ScaleModel(3));
  WriteEnsemble("one", Step("add", "in", "t") + Step("scale", "t", "out"));
  WriteEnsemble("two", Step("scale", "in", "out"));
  StartServing();
  for (const char* const name : {"one", "two", "add", "scale"}) ASSERT_TRUE(BecomesReady(name));
  grpc::ClientContext context;
  inference::RepositoryModelUnloadRequest request;
  inference::RepositoryModelUnloadResponse response;
  request.set_model_name("one");
  (*request.mutable_parameters())["unload_dependents"].set_bool_param(true);
  ASSERT_TRUE(stub_->RepositoryModelUnload(&context, request, &response).ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (IsReady("add")) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_FALSE(IsReady("one"));
  EXPECT_TRUE(IsReady("scale"));
  EXPECT_TRUE(IsReady("two"));
}

TEST_F(ServingEnsemblesTest, WeightsAreThereOnce) {
  const HostTensor weight{DType::kFloat32, {1 << 18, 4}, std::string(4 << 20, '\1')};
  WriteModel("heavy", onnx::test::ModelWriter()
                          .Input("x", DType::kFloat32, {1, 4})
                          .Initializer("w", weight)
                          .Node("Add", {"x", "w"}, {"sum"})
                          .Node("ReduceMax", {"sum"}, {"most"})
                          .Node("Add", {"x", "most"}, {"y"})
                          .Output("y", DType::kFloat32, {1, 4})
                          .File(13));
  WriteEnsemble("twice", Step("heavy", "in", "t") + Step("heavy", "t", "out"), "0");
  WriteFile("twice/config.pbtxt",
            StrCat("platform: 'ensemble' input { name: 'in' data_type: TYPE_FP32 dims: [1, 4] }"
                   " output { name: 'out' data_type: TYPE_FP32 dims: [1, 4] }"
                   " ensemble_scheduling { ",
                   Step("heavy", "in", "t"), Step("heavy", "t", "out"), "}"));
  StartServing({"--models-control", "explicit", "--models-memory", "7000000"});
  ASSERT_TRUE(Load("heavy").ok());
  const absl::Status loaded = Load("twice");
  EXPECT_TRUE(loaded.ok()) << loaded;
  EXPECT_TRUE(Run("twice").ok());
}

TEST_F(ServingEnsemblesTest, WhatDoesNotFitIsRefusedByItsStep) {
  WriteModel("add", AddModel(1));
  WriteModel("wide", AddModel(1, {-1, 5}));
  WriteModel("single", AddModel(1, {1, 4}));
  WriteModel("words", onnx::test::ModelWriter()
                          .StringInput("x", {-1})
                          .StringOutput("y", {-1})
                          .Node("Identity", {"x"}, {"y"})
                          .File(13));
  WriteModel("counts",
             onnx::test::ModelWriter()
                 .Input("x", DType::kFloat32, {-1, 4})
                 .Input("before", DType::kFloat32, {-1, 4})
                 .Output("y", DType::kFloat32, {-1, 4})
                 .Output("after", DType::kFloat32, {-1, 4})
                 .Node("Add", {"x", "before"}, {"y"})
                 .Node("Identity", {"y"}, {"after"})
                 .File(13),
             R"(max_batch_size: 8 sequence_batching { state { input_name: "before"
                output_name: "after" data_type: TYPE_FP32 dims: 4 } })");
  WriteEnsemble("itself", Step("itself2", "in", "out"));
  WriteEnsemble("itself2", StrCat("step { model_name: 'itself' ", Pair("input_map", "in", "in"),
                                  Pair("output_map", "out", "out"), "} "));
  WriteFile("itself/config.pbtxt",
            StrCat("platform: 'ensemble' input { name: 'in' data_type: TYPE_FP32 dims: 4 }"
                   " output { name: 'out' data_type: TYPE_FP32 dims: 4 }"
                   " ensemble_scheduling { step { model_name: 'itself2' ",
                   Pair("input_map", "in", "in"), Pair("output_map", "out", "out"), "} }"));
  std::string many;
  for (int i = 0; i < 300; ++i) many += Step("add", "in", StrCat("t", i));
  const struct {
    const char* name;
    std::string steps, reason;
  } kWrong[] = {
      {"unknown", Step("add", "in", "t") + Step("nothing", "t", "out"), "step 2 (nothing): model"},
      {"input",
       Step("add", "in", "out") + StrCat("step { model_name: 'add' ", Pair("input_map", "z", "in"),
                                         Pair("output_map", "y", "t"), "} "),
       "step 2 (add): input_map names 'z'"},
      {"missing", StrCat("step { model_name: 'add' ", Pair("output_map", "y", "out"), "} "),
       "step 1 (add): input_map has nothing for 'x'"},
      {"output",
       StrCat("step { model_name: 'add' ", Pair("input_map", "x", "in"),
              Pair("output_map", "z", "out"), "} "),
       "step 1 (add): output_map names 'z'"},
      {"makers", Step("add", "in", "out") + Step("add", "in", "out"),
       "step 2 (add): tensor 'out' is made by step 1 (add)"},
      {"request", Step("add", "in", "in") + Step("add", "in", "out"), "made by the request"},
      {"nobody", Step("add", "t", "out"), "step 1 (add): no step makes the tensor 't'"},
      {"no_output", Step("add", "in", "t"), "no step makes the output 'out'"},
      {"ring", Step("add", "t", "u") + Step("add", "u", "t") + Step("add", "in", "out"),
       "step 1 (add): it takes what can only be made after it"},
      {"shape", Step("add", "in", "t") + Step("wide", "t", "out"), "step 2 (wide)"},
      {"between", Step("add", "in", "t") + Step("wide", "t", "u") + Step("add", "u", "out"),
       "step 2 (wide)"},
      {"batch", Step("add", "in", "t") + Step("single", "t", "out"),
       "step 2 (single): takes no batches"},
      {"states", Step("counts", "in", "out"), "step 1 (counts): the model keeps states"},
      {"strings", Step("words", "in", "out"), "input 'in' is FP32, the model has BYTES"},
      {"types", Step("add", "in", "t") + Step("words", "t", "out"),
       "step 2 (words): input 'x' is BYTES of shape [-1], and what comes to it is FP32"},
      {"version",
       StrCat("step { model_name: 'add' model_version: 7 ", Pair("input_map", "x", "in"),
              Pair("output_map", "y", "out"), "} "),
       "step 1 (add): version 7 of model 'add'"},
      {"many", many, "more than 256 steps"},
      {"bad_name", "step { model_name: '../add' } ", "not a model's name"},
      {"none", "", "needs an ensemble_scheduling with steps"},
  };
  for (const auto& wrong : kWrong) WriteEnsemble(wrong.name, wrong.steps);
  // Nine deep, each of the one below.
  WriteEnsemble("deep0", Step("add", "in", "out"));
  for (int i = 1; i <= 9; ++i) {
    WriteEnsemble(StrCat("deep", i),
                  StrCat("step { model_name: 'deep", i - 1, "' ", Pair("input_map", "in", "in"),
                         Pair("output_map", "out", "out"), "} "));
  }
  StartServing();
  for (const auto& wrong : kWrong) ExpectReason(wrong.name, wrong.reason);
  ExpectReason("itself", "an ensemble contains itself, itself -> itself2 -> itself");
  ExpectReason("itself2", "an ensemble contains itself, itself2 -> itself -> itself2");
  EXPECT_TRUE(BecomesReady("deep7")) << Loaded("deep7")[0].reason();
  ExpectReason("deep9", "nested deeper than 8");
  EXPECT_TRUE(IsReady("add")) << "others are served";
}

}  // namespace
}  // namespace telegrad
