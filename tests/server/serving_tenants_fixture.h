// A daemon with models and tenants who are granted some of them, asked over gRPC and HTTP.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "engine/net/tcp.h"
#include "server/identity/base64url.h"
#include "server/identity/signature.h"
#include "tests/server/serving_fixture.h"

namespace telegrad {

class ServingTenantsTest : public ServingTest {
 protected:
  void SetUp() override {
    WriteModel("add", AddModel(1));
    WriteModel("team-one", AddModel(2));
    WriteModel("secret", AddModel(3));
    WriteMore();
    std::filesystem::create_directories(keys_.path() / "jwt");
    std::string secret;
    absl::Base64Escape(std::string(32, 's'), &secret);
    std::ofstream(keys_.path() / "jwt" / "shared.hs256") << secret;
    std::ofstream(keys_.path() / "tenants") << "[alice]\nmodels = add team-*\n"
                                               "[bob]\nhost_staging = 1MiB\nmodels = *\n"
                                               "[carol]\nmodels = *\nrequest_rate = 0\n"
                                               "request_burst = 3\n"
                                               "[dora]\nmodels = *\ntransfer_rate = 1\n"
                                               "transfer_burst = 64\n"
                                               "[eve]\nmodels = *\nstreams = 1\n"
                                               "[nobody]\n[a]\nmodels = a-*\n[b]\nmodels = b-*\n"
                                               "[ops]\nmodels = *\n";
    options_.credentials.token = Token("ops", /*admin=*/true);
    token_ = options_.credentials.token;
    std::vector<std::string> flags = More();
    flags.insert(flags.end(), {"--jwt-keys", keys_.path() / "jwt", "--tenants",
                               keys_.path() / "tenants", "--http", "127.0.0.1:0"});
    StartServing(flags);
    if (HasFatalFailure()) return;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!Http("", "GET", "/v2/health/ready").starts_with("HTTP/1.1 200") &&
           std::chrono::steady_clock::now() < deadline) {
    }
  }

  virtual std::vector<std::string> More() const { return {}; }  // flags
  virtual void WriteMore() {}                                   // models

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
    if (!fd.ok()) return "";
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

}  // namespace telegrad
