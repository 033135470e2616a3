// What one tenant may not use it cannot ask, see, load, unload or learn about: every call answers
// as if there were no such model.
#include <functional>
#include <set>

#include "tests/server/serving_tenants_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ServingSeparationTest : public ServingTenantsTest {
 protected:
  using Call = std::function<absl::Status(grpc::ClientContext* context, const std::string& model)>;

  // Every call of the protocol that names a model.
  template <typename Request, typename Response, typename Method>
  Call Named(Method method) {
    return [this, method](grpc::ClientContext* context, const std::string& model) {
      Request request;
      if constexpr (requires { request.set_name(model); }) {
        request.set_name(model);
      } else {
        request.set_model_name(model);
      }
      Response response;
      return FromGrpc((stub_.get()->*method)(context, request, &response));
    };
  }
  std::vector<std::pair<std::string, Call>> Calls() {
    using namespace inference;
    return {{"ready", Named<ModelReadyRequest, ModelReadyResponse>(&Stub::ModelReady)},
            {"metadata", Named<ModelMetadataRequest, ModelMetadataResponse>(&Stub::ModelMetadata)},
            {"config", Named<ModelConfigRequest, ModelConfigResponse>(&Stub::ModelConfig)},
            {"statistics",
             Named<ModelStatisticsRequest, ModelStatisticsResponse>(&Stub::ModelStatistics)},
            {"load", Named<RepositoryModelLoadRequest, RepositoryModelLoadResponse>(
                         &Stub::RepositoryModelLoad)},
            {"unload", Named<RepositoryModelUnloadRequest, RepositoryModelUnloadResponse>(
                           &Stub::RepositoryModelUnload)},
            {"trace", Named<TraceSettingRequest, TraceSettingResponse>(&Stub::TraceSetting)},
            {"infer", [this](grpc::ClientContext* context, const std::string& model) {
               inference::ModelInferResponse response;
               return FromGrpc(
                   stub_->ModelInfer(context, Floats(model, {1, 4}, {0, 0, 0, 0}), &response));
             }}};
  }
  static std::string Without(std::string text, std::string_view name) {
    for (size_t at = 0; (at = text.find(name)) != std::string::npos;)
      text.replace(at, name.size(), "?");
    return text;
  }
  static std::string BodyOf(const std::string& answer) {
    return answer.substr(0, 12) + answer.substr(answer.find("\r\n\r\n"));
  }
};

TEST_F(ServingSeparationTest, OverGrpc) {
  const std::string alice = Token("alice");
  for (const auto& [what, call] : Calls()) {
    SCOPED_TRACE(what);
    grpc::ClientContext there, nowhere;
    As(&there, alice);
    As(&nowhere, alice);
    const absl::Status status = call(&there, "secret");
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    const absl::Status unknown = call(&nowhere, "nothing");
    EXPECT_EQ(status.code(), unknown.code());
    EXPECT_EQ(Without(std::string(status.message()), "secret"),
              Without(std::string(unknown.message()), "nothing"));
  }
  grpc::ClientContext context;
  As(&context, alice);
  const auto stream = stub_->ModelStreamInfer(&context);
  ASSERT_TRUE(stream->Write(Floats("secret", {1, 4}, {0, 0, 0, 0})));
  inference::ModelStreamInferResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_THAT(response.error_message(), HasSubstr("may not use model 'secret'"));
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
  // It never got there.
  EXPECT_THAT(Http(token_, "GET", "/v2/models/secret/stats"), HasSubstr("\"fail\":{\"count\":0"));
}

TEST_F(ServingSeparationTest, ListsHaveWhatIsOnesOwn) {
  grpc::ClientContext all, index;
  As(&all, Token("alice"));
  As(&index, Token("alice"));
  inference::ModelStatisticsResponse statistics;
  ASSERT_TRUE(stub_->ModelStatistics(&all, {}, &statistics).ok());
  std::set<std::string> names;
  for (const auto& row : statistics.model_stats()) names.insert(row.name());
  EXPECT_THAT(names, ElementsAre("add", "team-one"));
  inference::RepositoryIndexResponse listed;
  ASSERT_TRUE(stub_->RepositoryIndex(&index, {}, &listed).ok());
  names.clear();
  for (const auto& row : listed.models()) names.insert(row.name());
  EXPECT_THAT(names, ElementsAre("add", "team-one"));
  EXPECT_THAT(Http(Token("alice"), "GET", "/v2/models/stats"), Not(HasSubstr("secret")));
  EXPECT_THAT(Http(Token("alice"), "POST", "/v2/repository/index"), Not(HasSubstr("secret")));
}

TEST_F(ServingSeparationTest, OverHttp) {
  const std::pair<std::string, std::string> paths[] = {{"GET", "/v2/models/*"},
                                                       {"GET", "/v2/models/*/config"},
                                                       {"GET", "/v2/models/*/stats"},
                                                       {"GET", "/v2/models/*/ready"},
                                                       {"GET", "/v2/models/*/versions/1"},
                                                       {"GET", "/v2/models/*/versions/1/ready"},
                                                       {"GET", "/v2/models/*/versions/1/stats"},
                                                       {"GET", "/v2/models/*/trace/setting"},
                                                       {"POST", "/v2/repository/models/*/load"},
                                                       {"POST", "/v2/repository/models/*/unload"},
                                                       {"POST", "/v2/models/*/infer"},
                                                       {"POST", "/v2/models/*/versions/1/infer"}};
  const std::string alice = Token("alice");
  for (const auto& [method, path] : paths) {
    SCOPED_TRACE(path);
    const auto answer = [&, m = method, p = path](std::string_view model) {
      const std::string body(path.ends_with("infer") ? kBody : "");
      std::string target = p;
      target.replace(target.find('*'), 1, model);
      return BodyOf(Http(alice, m, target, body));
    };
    const std::string secret = answer("secret");
    EXPECT_THAT(secret, StartsWith("HTTP/1.1 403"));
    EXPECT_EQ(Without(secret, "secret"), Without(answer("nothing"), "nothing"));
  }
  EXPECT_TRUE(InferAs(token_, "secret").ok());  // is there, and was not unloaded
}

// What does not fit names the model and figures, to tenants no other model.
class ServingReasonsTest : public ServingTenantsTest {
 protected:
  std::vector<std::string> More() const override {
    return {"--models-control", "explicit", "--models-memory", "3000000"};
  }
  void WriteMore() override {
    const auto heavy = [](char fill) {
      return onnx::test::ModelWriter()
          .Input("x", DType::kFloat32, {1})
          .Initializer("w", HostTensor{DType::kFloat32, {1 << 19}, std::string(2 << 20, fill)})
          .Node("Add", {"x", "w"}, {"y"})
          .Output("y")
          .File(13);
    };
    WriteModel("a-secret", heavy(1));
    WriteModel("b-secret", heavy(2));
  }
};

TEST_F(ServingReasonsTest, DoNotNameModelsOfOthers) {
  const auto load = [this](const std::string& model) {
    grpc::ClientContext context;
    As(&context, token_);
    inference::RepositoryModelLoadRequest request;
    inference::RepositoryModelLoadResponse response;
    request.set_model_name(model);
    return FromGrpc(stub_->RepositoryModelLoad(&context, request, &response));
  };
  ASSERT_TRUE(load("a-secret").ok());
  const absl::Status full = load("b-secret");
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("in use: a-secret version 1 2097152"));
  // Its tenant learns why, and nothing of the other.
  for (const std::string& told : {Http(Token("b"), "POST", "/v2/repository/index"),
                                  std::string(InferAs(Token("b"), "b-secret").message())}) {
    EXPECT_THAT(told, HasSubstr("are left of 3000000"));
    EXPECT_THAT(told, Not(HasSubstr("a-secret")));
  }
}

}  // namespace
}  // namespace telegrad
