// Saved plans as models: graph and weights in one safetensors file.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/escaping.h"
#include "engine/base/strings.h"
#include "engine/frontend/io/safetensors.h"
#include "engine/frontend/io/test_files.h"
#include "engine/wire/graph_bytes.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

class ServingPlansTest : public ServingTest {
 protected:
  // y = x + w, of two rows of three floats. `learns`: and w becomes y.
  static std::string PlanFile(float w, bool learns = false) {
    Graph g;
    const Shape shape{2, 3};
    const UOp x = g.Param(0, DType::kFloat32, shape), weight = g.Param(1, DType::kFloat32, shape);
    const UOp y = g.Param(2, DType::kFloat32, shape);
    const UOp sum = g.Make(Op::kAdd, {x, weight});
    std::vector<UOp> effects = {g.Make(Op::kStore, {y, sum})};
    if (learns) effects.push_back(g.Make(Op::kStore, {weight, sum}));
    const std::string graph = GraphBytes(g.Make(Op::kSink, DType::kVoid, effects));
    const std::map<std::string, std::string> metadata = {
        {"telegrad.plan", "1"},
        {"telegrad.graph", absl::Base64Escape(ToAbsl(graph))},
        {"telegrad.slots",
         R"([{"name":"x","role":"input"},{"name":"w","role":"state"},{"name":"y","role":"output"}])"}};
    return testing::Written([&](ByteSink* sink) {
      return WriteSafetensors({{"w", HostTensor::Of<float>(shape, std::vector<float>(6, w))}},
                              metadata, sink);
    });
  }
  // y = x + w, of up to eight rows; w is 1, 2, 3.
  static std::string SizedPlanFile(const std::string& size) {
    Graph g;
    const UOp n = g.Make(Op::kVar, DType::kInt64, {}, {0, 1, 8, 1});
    const UOp elements = g.Make(Op::kMul, {n, g.Index(3)});
    const Shape flat{24}, row{1, 3};
    const auto view = [&](int64_t slot) {
      const UOp part = g.Make(Op::kShrink, {g.Param(slot, DType::kFloat32, flat), elements},
                              std::vector<int64_t>{0, -2});
      return g.Make(Op::kReshape, {part, n}, std::vector<int64_t>{-2, 3});
    };
    const UOp w =
        g.Make(Op::kExpand, {g.Param(1, DType::kFloat32, row), n}, std::vector<int64_t>{-2, 3});
    const UOp store = g.Make(Op::kStore, {view(2), g.Make(Op::kAdd, {view(0), w})});
    const std::map<std::string, std::string> metadata = {
        {"telegrad.plan", "1"},
        {"telegrad.graph", absl::Base64Escape(ToAbsl(GraphBytes(g.Make(Op::kSink, {store}))))},
        {"telegrad.sizes", StrCat("[\"", size, "\"]")},
        {"telegrad.slots",
         R"([{"name":"x","role":"input"},{"name":"w","role":"state"},{"name":"y","role":"output"}])"}};
    return testing::Written([&](ByteSink* sink) {
      return WriteSafetensors({{"w", HostTensor::Of<float>({1, 3}, {1, 2, 3})}}, metadata, sink);
    });
  }
  void WritePlan(const std::string& name, const std::string& file, const std::string& config = "") {
    WriteFile(std::filesystem::path(name) / "1" / "model.safetensors", file);
    if (!config.empty()) WriteFile(std::filesystem::path(name) / "config.pbtxt", config);
  }
  std::vector<float> Sum(const std::string& model) {
    const auto answer = Infer(Floats(model, {2, 3}, {0, 1, 2, 3, 4, 5}));
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? Values<float>(*answer) : std::vector<float>();
  }
  void ExpectReason(const std::string& model, const std::string& part) {
    const auto rows = Loaded(model);
    ASSERT_EQ(rows.size(), 1u) << model;
    EXPECT_NE(rows[0].reason().find(part), std::string::npos) << model << ": " << rows[0].reason();
  }
};

TEST_F(ServingPlansTest, ServesAPlan) {
  WritePlan("plan", PlanFile(10));
  StartServing();
  ASSERT_TRUE(BecomesReady("plan")) << Loaded("plan")[0].reason();
  EXPECT_EQ(Sum("plan"), (std::vector<float>{10, 11, 12, 13, 14, 15}));

  grpc::ClientContext metadata, configuration;
  inference::ModelMetadataRequest request;
  inference::ModelMetadataResponse about;
  request.set_name("plan");
  ASSERT_TRUE(stub_->ModelMetadata(&metadata, request, &about).ok());
  EXPECT_EQ(about.platform(), "telegrad_plan");
  ASSERT_EQ(about.inputs_size(), 1);
  EXPECT_EQ(about.inputs(0).name(), "x");
  EXPECT_EQ(about.inputs(0).datatype(), "FP32");
  EXPECT_EQ(Shape(about.inputs(0).shape().begin(), about.inputs(0).shape().end()), (Shape{2, 3}));
  inference::ModelConfigRequest of;
  inference::ModelConfigResponse config;
  of.set_name("plan");
  ASSERT_TRUE(stub_->ModelConfig(&configuration, of, &config).ok());
  EXPECT_EQ(config.config().backend(), "telegrad");
  EXPECT_EQ(config.config().default_model_filename(), "model.safetensors");
  EXPECT_EQ(config.config().max_batch_size(), 0);

  EXPECT_EQ(Infer(Floats("plan", {1, 3}, {1, 2, 3})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServingPlansTest, LoadsAnewInPlace) {
  WritePlan("plan", PlanFile(10));
  StartServing();
  ASSERT_TRUE(BecomesReady("plan"));
  WritePlan("plan", PlanFile(20));
  ASSERT_TRUE(Load("plan").ok());
  EXPECT_EQ(Sum("plan")[0], 20);

  std::string cut = PlanFile(30);
  cut.resize(cut.size() - 8);
  WritePlan("plan", cut);
  const absl::Status status = Load("plan");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(Sum("plan")[0], 20) << "the version before serves on";
}

TEST_F(ServingPlansTest, RefusesWhatIsNoModel) {
  WritePlan("learns", PlanFile(1, /*learns=*/true));
  WritePlan("two_files", PlanFile(1));
  WriteModel("two_files", AddModel(1));
  WritePlan("platform", PlanFile(1), "platform: 'onnxruntime_onnx'");
  WritePlan("batch", PlanFile(1), "max_batch_size: 8");
  WritePlan("weights", testing::Written([](ByteSink* sink) {
              return WriteSafetensors({{"w", HostTensor::Of<float>({1}, {1})}}, {}, sink);
            }));
  StartServing();
  ExpectReason("learns", "a run writes to the weight 'w'");
  ExpectReason("two_files", "there are model.onnx and model.safetensors");
  ExpectReason("platform", "says platform onnxruntime_onnx, and the file is a saved plan");
  ExpectReason("batch", "whose first dimension is fixed");
  ExpectReason("weights", "telegrad.plan");
}

TEST_F(ServingPlansTest, ServesSizesThatDependOnTheInputs) {
  WritePlan("rows", SizedPlanFile("batch"));
  WritePlan("lengths", SizedPlanFile("length"));
  StartServing();
  for (const std::string name : {"rows", "lengths"}) {
    ASSERT_TRUE(BecomesReady(name)) << Loaded(name)[0].reason();
    for (const int64_t n : {1, 3, 8}) {
      std::vector<float> x, want;
      for (int64_t i = 0; i < n * 3; ++i) {
        x.push_back(static_cast<float>(i));
        want.push_back(static_cast<float>(i) + 1 + static_cast<float>(i % 3));
      }
      const auto answer = Infer(Floats(name, {n, 3}, x));
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(Values<float>(*answer), want) << name << " " << n;
    }
    const auto more = Infer(Floats(name, {9, 3}, std::vector<float>(27)));
    EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument) << more.status();
  }

  grpc::ClientContext context;
  inference::ModelMetadataRequest request;
  inference::ModelMetadataResponse about;
  request.set_name("lengths");
  ASSERT_TRUE(stub_->ModelMetadata(&context, request, &about).ok());
  EXPECT_EQ(Shape(about.inputs(0).shape().begin(), about.inputs(0).shape().end()), (Shape{-1, 3}));
}

TEST_F(ServingPlansTest, ConfigurationChoosesTheFile) {
  WritePlan("both", PlanFile(5), "default_model_filename: 'model.safetensors' backend: 'telegrad'");
  WriteFile("both/1/model.onnx", AddModel(1));
  StartServing();
  ASSERT_TRUE(BecomesReady("both")) << Loaded("both")[0].reason();
  EXPECT_EQ(Sum("both")[0], 5);
}

}  // namespace
}  // namespace telegrad
