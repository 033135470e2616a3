// The real daemon with keys that deploy/make-keys.sh has made, and raw calls to it.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "client/cc/connection.h"
#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "grpc/support/log.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/server/process.h"

namespace telegrad {

// A folder of keys: an authority, a server, the tenants alice and bob, the administrator ops.
class Keys {
 public:
  explicit Keys(const std::string& name)
      : folder_(StrCat(::testing::TempDir(), "telegrad_", name, "_", getpid())) {
    std::filesystem::remove_all(folder_);
    Make({});
  }
  ~Keys() { std::filesystem::remove_all(folder_); }

  void Make(std::vector<std::string> more) {
    std::vector<std::string> args = {"deploy/make-keys.sh",
                                     folder_,
                                     "--tenant",
                                     "alice",
                                     "--tenant",
                                     "bob",
                                     "--tenant",
                                     "ops/admin"};
    args.insert(args.end(), more.begin(), more.end());
    const testing::Output output = testing::RunProgram("/bin/bash", args);
    ASSERT_EQ(output.exit_code, 0) << output.text;
  }
  std::string path(const std::string& file) const { return folder_ + "/" + file; }
  // Signed by token.key unless told otherwise.
  std::string Token(const std::string& tenant, std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"deploy/make-token.sh", "--key", path("token.key"), "--tenant",
                                     tenant};
    args.insert(args.end(), more.begin(), more.end());
    testing::Output output = testing::RunProgram("/bin/bash", args);
    EXPECT_EQ(output.exit_code, 0) << output.text;
    return output.text.substr(0, output.text.find('\n'));
  }
  ClientCredentials Certificate(const std::string& tenant) const {
    return {.tls_ca = path("ca.pem"),
            .tls_cert = path(StrCat("client-", tenant, ".pem")),
            .tls_key = path(StrCat("client-", tenant, ".key"))};
  }
  ClientCredentials WithToken(const std::string& token) const {
    return {.tls_ca = path("ca.pem"), .token = token};
  }
  std::vector<std::string> TlsFlags() const {
    return {"--tls-cert", path("server.pem"), "--tls-key", path("server.key")};
  }

 private:
  const std::string folder_;
};

class AuthTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    gpr_set_log_function([](gpr_log_func_args*) {});  // of handshakes that must fail
    keys_ = new Keys("keys");
  }
  static void TearDownTestSuite() {
    delete keys_;
    keys_ = nullptr;
  }

  // With TLS, a data and an admin listener, and whatever else is said.
  void Start(std::vector<std::string> more) {
    std::vector<std::string> args = {"--listen",     "127.0.0.1:0",       "--data-listen",
                                     "127.0.0.1:0",  "--admin-listen",    "127.0.0.1:0",
                                     "--cpu-memory", "268435456",         "--log-level",
                                     "warning",      "--compile-workers", "1"};
    for (const std::string& flag : keys_->TlsFlags()) args.push_back(flag);
    args.insert(args.end(), more.begin(), more.end());
    daemon_.reset();
    daemon_ = std::make_unique<testing::Process>(TELEGRADD, args);
    data_ = daemon_->Line("data on ");
    admin_ = daemon_->Line("admin on ");
    address_ = daemon_->Line("listening on ");
    ASSERT_THAT(address_, ::testing::HasSubstr("127.0.0.1:"));
    daemon_->ReadOn();
  }

  static absl::StatusOr<std::shared_ptr<Connection>> Connect(const std::string& address,
                                                             const ClientCredentials& credentials) {
    ConnectOptions options;
    options.timeout = absl::Seconds(20);
    options.credentials = credentials;
    return Connection::Connect(address, options);
  }

  // What a call comes to: the status that it ended with, or OK if it was answered. One empty
  // request is sent.
  static absl::Status Call(const std::string& address, const ClientCredentials& credentials,
                           const std::string& method) {
    const auto channel = OpenChannel(address, credentials, /*bulk=*/false);
    if (!channel.ok()) return channel.status();
    grpc::GenericStub stub(*channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    TokenSource tokens(credentials);
    if (const absl::Status status = tokens.Authorize(&context); !status.ok()) return status;
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareCall(&context, method, &queue);
    const auto next = [&] {
      void* tag;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    const grpc::Slice nothing("");
    grpc::ByteBuffer request(&nothing, 1), response;
    bool answered = false;
    call->StartCall(nullptr);
    if (next()) {
      call->WriteLast(request, {}, nullptr);
      next();
      call->Read(&response, nullptr);
      answered = next();
    }
    if (answered) context.TryCancel();
    grpc::Status status;
    call->Finish(&status, nullptr);
    next();
    queue.Shutdown();
    if (answered) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }

  static Keys* keys_;
  std::unique_ptr<testing::Process> daemon_;
  std::string address_, data_, admin_;
};

inline Keys* AuthTest::keys_ = nullptr;

}  // namespace telegrad
