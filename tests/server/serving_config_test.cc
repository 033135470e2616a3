// What config.pbtxt says as people who come from Triton have it: shapes that requests and the model
// see differently, samples for the start, and fields that only other servers need.
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ServingConfigTest = ServingTest;

// As in the first example of Triton's documentation: a model of one image, which requests send
// without the dimension of 1.
TEST_F(ServingConfigTest, AReshapeHidesDimensionsOfOne) {
  WriteModel("image", AddModel(1, {1, 3, 2}), R"(
    platform: "onnxruntime_onnx"
    max_batch_size : 0
    input [ { name: "x" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, 2 ]
              reshape { shape: [ 1, 3, 2 ] } } ]
    output [ { name: "y" data_type: TYPE_FP32 dims: [ 6 ] reshape { shape: [ 1, 3, 2 ] }
               label_filename: "labels.txt" } ])");
  WriteFile("image/labels.txt", "a\nb\nc\nd\ne\nf\n");
  StartServing();
  ASSERT_TRUE(BecomesReady("image")) << ReasonOf("image");
  auto request = Floats("image", {3, 2}, {1, 2, 3, 4, 5, 6});
  auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(6));
  EXPECT_THAT(Values<float>(*response), ElementsAre(2, 3, 4, 5, 6, 7));
  auto* wanted = request.add_outputs();
  wanted->set_name("y");
  (*wanted->mutable_parameters())["classification"].set_int64_param(1);
  response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(1));
  EXPECT_THAT(response->raw_output_contents(0), HasSubstr("7.000000:5:f"));
  const absl::Status inner = Infer(Floats("image", {1, 3, 2}, {1, 2, 3, 4, 5, 6})).status();
  EXPECT_TRUE(absl::IsInvalidArgument(inner)) << inner;
  const inference::ModelConfig config = ConfigOf("image");
  EXPECT_THAT(config.input(0).dims(), ElementsAre(3, 2));
  EXPECT_THAT(config.input(0).reshape().shape(), ElementsAre(1, 3, 2));
}

// The batch's dimension is in both shapes, and an empty reshape is a scalar for each row.
TEST_F(ServingConfigTest, AReshapeBehindTheBatch) {
  WriteModel("scalars", AddModel(1, {-1}), R"(
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
    output { name: "y" data_type: TYPE_FP32 dims: [ 1, 1 ] reshape { shape: [ ] } })");
  WriteModel("lengths", AddModel(1, {-1, -1, 2}), R"(
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [ 2, -1 ] reshape { shape: [ -1, 2 ] } }
    output { name: "y" data_type: TYPE_FP32 dims: [ -1, 2 ] })");
  WriteModel("open", AddModel(1, {-1, -1, 2}), R"(
    max_batch_size: 4
    input { name: "x" data_type: TYPE_FP32 dims: [ 1, -1, 2 ] reshape { shape: [ -1, 2 ] } }
    output { name: "y" data_type: TYPE_FP32 dims: [ -1, 1, 2 ] reshape { shape: [ -1, 2 ] } })");
  StartServing();
  ASSERT_TRUE(BecomesReady("scalars")) << ReasonOf("scalars");
  auto response = Infer(Floats("scalars", {3, 1}, {1, 2, 3}));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(3, 1, 1));
  EXPECT_THAT(Values<float>(*response), ElementsAre(2, 3, 4));
  ASSERT_TRUE(BecomesReady("open")) << ReasonOf("open");
  response = Infer(Floats("open", {2, 1, 3, 2}, std::vector<float>(12, 1)));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(2, 3, 1, 2));
  // With another number of elements before the dimension of -1 there is no telling its size.
  EXPECT_FALSE(BecomesReady("lengths"));
  EXPECT_THAT(ReasonOf("lengths"), HasSubstr("cannot be reshaped to"));
}

TEST_F(ServingConfigTest, StepsOfAnEnsembleHaveTheirReshapes) {
  WriteModel("one", AddModel(1, {1, 4}), R"(
    max_batch_size: 0
    input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] reshape { shape: [ 1, 4 ] } }
    output { name: "y" data_type: TYPE_FP32 dims: [ 2, 2 ] reshape { shape: [ 1, 4 ] } })");
  WriteModel("two", AddModel(10, {2, 2}));
  WriteFile("both/config.pbtxt", R"(
    platform: "ensemble"
    input { name: "a" data_type: TYPE_FP32 dims: [ 4 ] }
    output { name: "b" data_type: TYPE_FP32 dims: [ 2, 2 ] }
    ensemble_scheduling { step [
      { model_name: "one" input_map { key: "x" value: "a" } output_map { key: "y" value: "m" } },
      { model_name: "two" input_map { key: "x" value: "m" } output_map { key: "y" value: "b" } }
    ] })");
  std::filesystem::create_directories(models_.path() / "both" / "1");
  StartServing();
  ASSERT_TRUE(BecomesReady("both")) << ReasonOf("both");
  auto request = Floats("both", {4}, {1, 2, 3, 4});
  request.mutable_inputs(0)->set_name("a");
  const auto response = Infer(request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_THAT(response->outputs(0).shape(), ElementsAre(2, 2));
  EXPECT_THAT(Values<float>(*response), ElementsAre(12, 13, 14, 15));
}

// Lists of messages without a colon are read although nothing here needs them.
TEST_F(ServingConfigTest, FieldsOfOtherServersArePassedOver) {
  WriteModel("add", AddModel(1), R"(
    name: "add"
    max_batch_size: 8
    optimization {
      graph { level: 1 }
      execution_accelerators { gpu_execution_accelerator [ { name: "tensorrt"
        parameters { key: "precision_mode" value: "FP16" } } ] }
      input_pinned_memory { enable: true }
      cuda { graphs: true graph_spec [ { batch_size: 1 } ] }
    }
    instance_group [ { count: 1 kind: KIND_AUTO rate_limiter { resources [ { name: "R" count: 1 } ] } } ]
    model_operations { op_library_filename: [ "a.so" ] }
    model_repository_agents { agents [ { name: "checksum" } ] }
    metric_tags { key: "team" value: "a" }
    cc_model_filenames { key: "8.0" value: "b" }
    model_metrics { metric_control [ { metric_identifier { family: "x" } } ] }
    parameters [ { key: "threads" value: { string_value: "4" } },
                 { key: "mode" value: { string_value: "fast" } } ])");
  StartServing();
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  const inference::ModelConfig config = ConfigOf("add");
  EXPECT_EQ(config.parameters().at("threads").string_value(), "4");
  EXPECT_EQ(config.parameters().at("mode").string_value(), "fast");
  EXPECT_TRUE(Infer(Floats("add", {1, 4}, {1, 2, 3, 4})).ok());
}

// Of a model whose shapes depend on the request, what the sample has is compiled before the first.
TEST_F(ServingConfigTest, AWarmupIsCompiledBeforeTheFirstRequest) {
  const std::string config = R"(
    max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
    output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
    model_warmup [ { name: "three" batch_size: 3
      inputs { key: "x" value: { data_type: TYPE_FP32 dims: [ )";
  WriteModel("add", AddModel(1, {-1, -1}), config + "7 ] zero_data: true } } } ]");
  WriteModel("wrong", AddModel(1, {-1, -1}), config + "-1 ] random_data: true } } } ]");
  WriteModel("nothing", AddModel(1), "max_batch_size: 8 model_warmup { batch_size: 1 }");
  StartServing();
  ASSERT_TRUE(BecomesReady("add")) << ReasonOf("add");
  // From now on nothing is compiled any more: the file was written to.
  std::ofstream(models_.path() / "add" / "1" / "model.onnx", std::ios::app) << " ";
  const auto response = Infer(Floats("add", {3, 7}, std::vector<float>(21, 1)));
  EXPECT_TRUE(response.ok()) << response.status();
  const absl::Status other = Infer(Floats("add", {3, 6}, std::vector<float>(18, 1))).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_FALSE(BecomesReady("wrong"));
  EXPECT_THAT(ReasonOf("wrong"), HasSubstr("model_warmup: input 'x' has dims"));
  EXPECT_FALSE(BecomesReady("nothing"));
  EXPECT_THAT(ReasonOf("nothing"), HasSubstr("model_warmup has nothing for input 'x'"));
}

TEST_F(ServingConfigTest, ARequestThatIsRefusedIsTheLastOne) {
  WriteModel("add", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("add"));
  ASSERT_TRUE(Infer(Floats("add", {1, 4}, {1, 2, 3, 4})).ok());
  const uint64_t before = Statistics("add").last_inference();
  EXPECT_GT(before, 0u);
  EXPECT_FALSE(Infer(Floats("add", {1, 3}, {1, 2, 3})).ok());
  EXPECT_GE(Statistics("add").last_inference(), before);
}

}  // namespace
}  // namespace telegrad
