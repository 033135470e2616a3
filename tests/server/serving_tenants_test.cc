// Models with callers who have names: nobody uses what was not granted, over neither protocol, and
// what a tenant uses is charged to it.
#include <fcntl.h>
#include <sys/socket.h>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "engine/net/tcp.h"
#include "server/identity/base64url.h"
#include "server/identity/signature.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class ServingTenantsTest : public ServingTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    WriteModel("team-one", AddModel(2));
    WriteModel("secret", AddModel(3));
    std::filesystem::create_directories(keys_.path() / "jwt");
    std::string secret;
    absl::Base64Escape(std::string(32, 's'), &secret);
    std::ofstream(keys_.path() / "jwt" / "shared.hs256") << secret;
    std::ofstream(keys_.path() / "tenants") << "[alice]\nmodels = add team-*\n"
                                               "[bob]\nhost_staging = 1MiB\nmodels = *\n"
                                               "[nobody]\n"
                                               "[ops]\nmodels = *\n";
    options_.credentials.token = Token("ops", /*admin=*/true);
    token_ = options_.credentials.token;
    StartServing({"--jwt-keys", keys_.path() / "jwt", "--tenants", keys_.path() / "tenants",
                  "--http", "127.0.0.1:0"});
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!Http("", "GET", "/v2/health/ready").starts_with("HTTP/1.1 200") &&
           std::chrono::steady_clock::now() < deadline) {
    }
  }

  static std::string Token(std::string_view tenant, bool admin = false) {
    const std::string token =
        StrCat(Base64UrlEncode(R"({"alg":"HS256","kid":"shared"})"), ".",
               Base64UrlEncode(StrCat(R"({"aud":"telegrad","sub":"x","tenant":")", tenant,
                                      R"(","admin":)", admin ? "true" : "false", R"(,"exp":)",
                                      absl::ToUnixSeconds(absl::Now() + absl::Hours(1)), "}")));
    return StrCat(token, ".", Base64UrlEncode(Hmac(std::string(32, 's'), token)));
  }
  void As(grpc::ClientContext* context, const std::string& token) {
    if (!token.empty()) context->AddMetadata("authorization", "Bearer " + token);
  }
  absl::Status InferAs(const std::string& token, const std::string& model, int rows = 1) {
    grpc::ClientContext context;
    As(&context, token);
    inference::ModelInferResponse response;
    const auto request =
        Floats(model, {rows, 4}, std::vector<float>(static_cast<size_t>(rows) * 4));
    return FromGrpc(stub_->ModelInfer(&context, request, &response));
  }
  std::string Http(const std::string& token, std::string_view method, std::string_view path,
                   std::string_view body = "", size_t declared = 0) {
    const auto fd = ConnectTcp(http_, std::chrono::steady_clock::now() + std::chrono::seconds(30));
    EXPECT_TRUE(fd.ok()) << fd.status();
    fcntl(fd->get(), F_SETFL, 0);  // to wait in recv
    const std::string request =
        StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
               token.empty() ? "" : StrCat("Authorization: Bearer ", token, "\r\n"),
               "Content-Length: ", std::max(declared, body.size()), "\r\n\r\n", body);
    send(fd->get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string out;
    char bytes[4096];
    for (ssize_t n = 0; (n = recv(fd->get(), bytes, sizeof(bytes), 0)) > 0;) {
      out.append(bytes, static_cast<size_t>(n));
    }
    return out;
  }

  static constexpr std::string_view kBody =
      R"({"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[0,1,2,3]}]})";
  TemporaryFolder keys_;
  std::string token_;
};

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
