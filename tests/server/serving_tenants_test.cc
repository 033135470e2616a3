// Models and authenticated callers: a tenant can use only models that were granted to it, over
// either protocol, and what it uses is charged to it.
#include "tests/server/serving_tenants_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(ServingTenantsTest, OnlyGrantedModelsAreUsed) {
  const std::string alice = Token("alice"), nobody = Token("nobody");
  EXPECT_TRUE(InferAs(alice, "add").ok());
  EXPECT_TRUE(InferAs(alice, "team-one").ok());
  for (const char* const model : {"secret", "nothing"}) {  // whether there is one or not
    const absl::Status status = InferAs(alice, model);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("models = NAME"));
  }
  EXPECT_TRUE(absl::IsPermissionDenied(InferAs(nobody, "add")));
  EXPECT_TRUE(absl::IsUnauthenticated(InferAs("", "add")));
  EXPECT_TRUE(absl::IsUnauthenticated(InferAs("x" + alice, "add")));
  EXPECT_TRUE(absl::IsPermissionDenied(InferAs(Token("stranger"), "add")));

  EXPECT_THAT(Http(alice, "POST", "/v2/models/add/infer", kBody), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Http(alice, "POST", "/v2/models/secret/infer", kBody), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Http(alice, "POST", "/v2/models/nothing/infer", kBody), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(Http(nobody, "POST", "/v2/models/add/infer", kBody), StartsWith("HTTP/1.1 403"));
}

// Each way in, without credentials and with those of a tenant that was granted nothing.
TEST_F(ServingTenantsTest, EveryPathAsksWhoCalls) {
  const std::pair<std::string, std::string> paths[] = {{"GET", "/v2"},
                                                       {"GET", "/v2/models/add"},
                                                       {"GET", "/v2/models/add/config"},
                                                       {"GET", "/v2/models/add/stats"},
                                                       {"GET", "/v2/models/add/ready"},
                                                       {"GET", "/v2/models/stats"},
                                                       {"GET", "/v2/nothing"},
                                                       {"POST", "/v2/repository/index"},
                                                       {"POST", "/v2/repository/models/add/load"},
                                                       {"POST", "/v2/repository/models/add/unload"},
                                                       {"POST", "/v2/models/add/infer"}};
  for (const auto& [method, path] : paths) {
    EXPECT_THAT(Http("", method, path), StartsWith("HTTP/1.1 401")) << path;
    EXPECT_THAT(Http("nonsense", method, path), StartsWith("HTTP/1.1 401")) << path;
  }
  const std::string nobody = Token("nobody");
  for (const char* const path : {"", "/config", "/stats", "/ready"}) {
    EXPECT_THAT(Http(nobody, "GET", StrCat("/v2/models/add", path)), StartsWith("HTTP/1.1 403"));
  }
  EXPECT_THAT(Http(nobody, "GET", "/v2/models/stats"), HasSubstr("{\"model_stats\":[]}"));
  EXPECT_THAT(Http(nobody, "POST", "/v2/repository/index"), HasSubstr("\r\n\r\n[]"));
  EXPECT_THAT(Http("", "GET", "/v2/health/live"), StartsWith("HTTP/1.1 200"));
}

TEST_F(ServingTenantsTest, OnlyAdministratorsLoadAndUnload) {
  const auto unload = [&](const std::string& token) {
    grpc::ClientContext context;
    As(&context, token);
    inference::RepositoryModelUnloadRequest request;
    inference::RepositoryModelUnloadResponse response;
    request.set_model_name("add");
    return FromGrpc(stub_->RepositoryModelUnload(&context, request, &response));
  };
  EXPECT_TRUE(absl::IsPermissionDenied(unload(Token("alice"))));
  EXPECT_THAT(Http(Token("alice"), "POST", "/v2/repository/models/add/unload"),
              StartsWith("HTTP/1.1 403"));
  EXPECT_TRUE(InferAs(Token("alice"), "add").ok());
  EXPECT_TRUE(unload(token_).ok());
  EXPECT_TRUE(absl::IsUnavailable(InferAs(Token("alice"), "add")));
}

TEST_F(ServingTenantsTest, OnlyAdministratorsSeeAndChangeSettings) {
  const std::string alice = Token("alice");
  for (const char* const path :
       {"/v2/trace/setting", "/v2/models/add/trace/setting", "/v2/logging"}) {
    EXPECT_THAT(Http("", "GET", path), StartsWith("HTTP/1.1 401")) << path;
    for (const char* const method : {"GET", "POST"}) {
      EXPECT_THAT(Http(alice, method, path), StartsWith("HTTP/1.1 403")) << method << path;
    }
    EXPECT_THAT(Http(token_, "GET", path), StartsWith("HTTP/1.1 200")) << path;
  }
  grpc::ClientContext trace, log;
  As(&trace, alice);
  As(&log, alice);
  inference::TraceSettingResponse traced;
  inference::LogSettingsResponse logged;
  EXPECT_TRUE(absl::IsPermissionDenied(FromGrpc(stub_->TraceSetting(&trace, {}, &traced))));
  EXPECT_TRUE(absl::IsPermissionDenied(FromGrpc(stub_->LogSettings(&log, {}, &logged))));
}

TEST_F(ServingTenantsTest, ARequestIsChargedToItsTenant) {
  const std::string bob = Token("bob");
  EXPECT_TRUE(InferAs(bob, "add", 32).ok());
  auto request = Floats("add", {1, 4}, {0, 0, 0, 0});
  *request.mutable_raw_input_contents(0) = std::string(2 << 20, '\0');
  grpc::ClientContext context;
  As(&context, bob);
  inference::ModelInferResponse response;
  const absl::Status status = FromGrpc(stub_->ModelInfer(&context, request, &response));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("host_staging of tenant bob"));
  // Before the body comes.
  EXPECT_THAT(Http(bob, "POST", "/v2/models/add/infer", "", 2 << 20), StartsWith("HTTP/1.1 429"));
  EXPECT_TRUE(InferAs(bob, "add").ok());
}

// Over both protocols together, and others go on.
TEST_F(ServingTenantsTest, RequestsOfATenantAreLimited) {
  const std::string carol = Token("carol");
  EXPECT_TRUE(InferAs(carol, "add").ok());
  EXPECT_THAT(Http(carol, "POST", "/v2/models/add/infer", kBody), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Http(carol, "GET", "/v2/models/add"), StartsWith("HTTP/1.1 200"));
  const absl::Status status = InferAs(carol, "add");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("request_rate of tenant carol"));
  EXPECT_THAT(Http(carol, "GET", "/v2/models/add"), StartsWith("HTTP/1.1 429"));
  grpc::ClientContext context;
  As(&context, carol);
  inference::ModelMetadataRequest request;
  request.set_name("add");
  inference::ModelMetadataResponse response;
  EXPECT_TRUE(
      absl::IsResourceExhausted(FromGrpc(stub_->ModelMetadata(&context, request, &response))));
  EXPECT_TRUE(InferAs(Token("alice"), "add").ok());
}

TEST_F(ServingTenantsTest, TransferredBytesOfATenantAreLimited) {
  const std::string dora = Token("dora");
  EXPECT_TRUE(InferAs(dora, "add", 4).ok());  // 64 bytes there and 64 back
  const absl::Status status = InferAs(dora, "add");
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("transfer_rate of tenant dora"));
  const std::string answer = Http(dora, "POST", "/v2/models/add/infer", kBody);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 429"));
  EXPECT_THAT(answer, HasSubstr("\r\nRetry-After: "));
}

TEST_F(ServingTenantsTest, OpenStreamsOfATenantAreLimited) {
  const std::string eve = Token("eve");
  {
    grpc::ClientContext context;
    As(&context, eve);
    const auto stream = stub_->ModelStreamInfer(&context);
    ASSERT_TRUE(stream->Write(Floats("add", {1, 4}, {0, 1, 2, 3})));
    inference::ModelStreamInferResponse response;
    ASSERT_TRUE(stream->Read(&response));
    const absl::Status status = InferAs(eve, "add");
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("streams of tenant eve"));
    EXPECT_TRUE(stream->WritesDone());
    EXPECT_TRUE(stream->Finish().ok());
  }
  // The call is over for the client a moment before the server knows.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  absl::Status again = InferAs(eve, "add");
  while (!again.ok() && std::chrono::steady_clock::now() < deadline) again = InferAs(eve, "add");
  EXPECT_TRUE(again.ok()) << again;
}

// A short text has many values: what they become is charged before it is there.
TEST_F(ServingTenantsTest, ValuesInJsonAreCharged) {
  const std::string bob = Token("bob");
  std::string zeros = "0";
  for (int i = 1; i < 400'000; ++i) zeros += ",0";
  const std::string answer = Http(
      bob, "POST", "/v2/models/add/infer",
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[100000,4],"data":[)" + zeros + "]}]}");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 429"));
  EXPECT_THAT(answer, HasSubstr("host_staging of tenant bob"));
  EXPECT_THAT(Http(bob, "POST", "/v2/models/add/infer", kBody), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace telegrad
