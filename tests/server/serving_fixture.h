// The real daemon with a repository of models, and a plain stub of the protocol's service.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "engine/frontend/onnx/test_model.h"
#include "grpcpp/grpcpp.h"
#include "inference/grpc_service.grpc.pb.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {

// A folder that goes with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = ::testing::TempDir() + "models_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class ServingTest : public DaemonTest {
 protected:
  using Stub = inference::GRPCInferenceService::Stub;

  void SetUp() override {}  // once there are models

  void StartServing(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--models", models_.path()});
    DaemonTest::Start(std::move(more));
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    stub_ = inference::GRPCInferenceService::NewStub(
        grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  }

  void WriteFile(const std::filesystem::path& name, std::string_view content) {
    const auto path = models_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    // Replaced as a whole, as whoever publishes a model does it.
    const auto next = std::filesystem::path(path.string() + ".next");
    std::ofstream(next, std::ios::binary) << content;
    std::filesystem::rename(next, path);
  }
  void WriteModel(const std::string& name, const std::string& file, const std::string& config = "",
                  int version = 1) {
    WriteFile(std::filesystem::path(name) / std::to_string(version) / "model.onnx", file);
    if (!config.empty()) WriteFile(std::filesystem::path(name) / "config.pbtxt", config);
  }

  // y = x + addend, of floats. A dimension of -1 is the batch's, "N".
  static std::string AddModel(float addend, const Shape& shape = {-1, 4}) {
    return onnx::test::ModelWriter()
        .Input("x", DType::kFloat32, shape)
        .Output("y", DType::kFloat32, shape)
        .Initializer("c", HostTensor::Of<float>({1}, {addend}))
        .Node("Add", {"x", "c"}, {"y"})
        .File(13);
  }
  static std::string IdentityModel(DType dtype, const Shape& shape) {
    return onnx::test::ModelWriter()
        .Input("x", dtype, shape)
        .Output("y", dtype, shape)
        .Node("Identity", {"x"}, {"y"})
        .File(13);
  }

  template <typename T>
  static inference::ModelInferRequest Request(const std::string& model, const std::string& datatype,
                                              const Shape& shape, const std::vector<T>& values) {
    inference::ModelInferRequest request;
    request.set_model_name(model);
    auto* input = request.add_inputs();
    input->set_name("x");
    input->set_datatype(datatype);
    input->mutable_shape()->Add(shape.begin(), shape.end());
    request.add_raw_input_contents(
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
    return request;
  }
  static inference::ModelInferRequest Floats(const std::string& model, const Shape& shape,
                                             const std::vector<float>& values) {
    return Request(model, "FP32", shape, values);
  }

  absl::StatusOr<inference::ModelInferResponse> Infer(const inference::ModelInferRequest& request) {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    TG_RETURN_IF_ERROR(FromGrpc(stub_->ModelInfer(&context, request, &response)));
    return response;
  }
  static absl::Status FromGrpc(const grpc::Status& status) {
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  template <typename T>
  static std::vector<T> Values(const inference::ModelInferResponse& response, int output = 0) {
    const std::string& raw = response.raw_output_contents(output);
    std::vector<T> out(raw.size() / sizeof(T));
    if (!out.empty()) std::memcpy(out.data(), raw.data(), raw.size());
    return out;
  }

  bool IsReady(const std::string& model, const std::string& version = "") {
    grpc::ClientContext context;
    inference::ModelReadyRequest request;
    inference::ModelReadyResponse response;
    request.set_name(model);
    request.set_version(version);
    return stub_->ModelReady(&context, request, &response).ok() && response.ready();
  }
  // Models are loaded in the background; state and reason of all of a model's versions once none is
  // being loaded any more.
  std::vector<inference::RepositoryIndexResponse::ModelIndex> Loaded(const std::string& model) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    std::vector<inference::RepositoryIndexResponse::ModelIndex> out;
    bool loading = true;
    while (loading && std::chrono::steady_clock::now() < deadline) {
      grpc::ClientContext context;
      inference::RepositoryIndexResponse index;
      EXPECT_TRUE(stub_->RepositoryIndex(&context, {}, &index).ok());
      out.clear();
      loading = false;
      for (const auto& row : index.models()) {
        if (row.name() != model) continue;
        out.push_back(row);
        loading |= row.state() == "LOADING";
      }
      loading |= out.empty();
    }
    EXPECT_FALSE(loading) << model;
    return out;
  }
  // Why a model is not served, once it has been tried.
  std::string ReasonOf(const std::string& model) {
    const auto rows = Loaded(model);
    return rows.empty() ? "" : rows.front().reason();
  }
  inference::ModelConfig ConfigOf(const std::string& model) {
    grpc::ClientContext context;
    inference::ModelConfigRequest request;
    request.set_name(model);
    inference::ModelConfigResponse response;
    EXPECT_TRUE(stub_->ModelConfig(&context, request, &response).ok());
    return response.config();
  }
  bool BecomesReady(const std::string& model) {
    Loaded(model);
    return IsReady(model);
  }
  absl::Status Load(const std::string& model) {
    grpc::ClientContext context;
    inference::RepositoryModelLoadRequest request;
    inference::RepositoryModelLoadResponse response;
    request.set_model_name(model);
    return FromGrpc(stub_->RepositoryModelLoad(&context, request, &response));
  }
  absl::Status Unload(const std::string& model) {
    grpc::ClientContext context;
    inference::RepositoryModelUnloadRequest request;
    inference::RepositoryModelUnloadResponse response;
    request.set_model_name(model);
    return FromGrpc(stub_->RepositoryModelUnload(&context, request, &response));
  }
  inference::ModelStatistics Statistics(const std::string& model) {
    grpc::ClientContext context;
    inference::ModelStatisticsRequest request;
    inference::ModelStatisticsResponse response;
    request.set_name(model);
    EXPECT_TRUE(stub_->ModelStatistics(&context, request, &response).ok());
    return response.model_stats_size() > 0 ? response.model_stats(0) : inference::ModelStatistics();
  }

  TemporaryFolder models_;
  std::unique_ptr<Stub> stub_;
};

}  // namespace telegrad
