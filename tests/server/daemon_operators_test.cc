// For operators: unauthenticated clients cannot use up the file descriptors, the health service
// reports lost devices, files are read again when they change, and no client blocks the page of
// metrics.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>

#include "engine/base/unique_fd.h"
#include "engine/net/tcp.h"
#include "tests/server/auth_fixture.h"
#include "tests/server/daemon_fixture.h"
#include "tests/server/raw_session.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using Code = absl::StatusCode;

constexpr std::chrono::seconds kLong{30};

UniqueFd Dial(const std::string& address) {
  auto fd = ConnectTcp(address, std::chrono::steady_clock::now() + kLong);
  EXPECT_TRUE(fd.ok()) << fd.status();
  return fd.ok() ? *std::move(fd) : UniqueFd();
}

// Whether the other end hangs up, however long that takes; what it says before is dropped.
bool HangsUp(const UniqueFd& fd) {
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  while (std::chrono::steady_clock::now() < deadline) {
    pollfd polled = {fd.get(), POLLIN, 0};
    char bytes[4096];
    if (poll(&polled, 1, 1000) > 0 && recv(fd.get(), bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) {
      return true;
    }
  }
  return false;
}

// One request for the page of metrics.
std::string Get(const std::string& port, const std::string& request) {
  const UniqueFd fd = Dial("127.0.0.1:" + port);
  fcntl(fd.get(), F_SETFL, 0);  // to wait in recv
  send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::string all;
  char bytes[4096];
  for (ssize_t n; (n = recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;) {
    all.append(bytes, static_cast<size_t>(n));
  }
  return all;
}

class OperatorsTest : public DaemonTest {
 protected:
  void SetUp() override {}
  // As Start, below a shell that has done `first`.
  void StartAfter(const std::string& first, std::vector<std::string> more) {
    socket_ = StrCat(::testing::TempDir(), "telegrad_", getpid(), ".sock");
    std::string command = StrCat(first, "; exec ", TELEGRADD,
                                 " --listen 127.0.0.1:0 --metrics 127.0.0.1:0 --cpu-memory "
                                 "268435456 --compile-workers 1 --log-level off");
    for (const std::string& flag : more) StrAppend(&command, " ", flag);
    daemon_ =
        std::make_unique<testing::Process>("/bin/bash", std::vector<std::string>{"-c", command});
    metrics_ = daemon_->Line("metrics on http://127.0.0.1:");
    address_ = daemon_->Line("listening on ");
    ASSERT_THAT(address_, HasSubstr("127.0.0.1:"));
    daemon_->ReadOn();
    metrics_ = metrics_.substr(0, metrics_.find('/'));
  }
};

// The library's own listeners close for good at the first connection for which there is no
// descriptor.
TEST_F(OperatorsTest, MoreIdleConnectionsThanDescriptorsLeaveRoomForWhoHasCredentials) {
  StartAfter("ulimit -n 256", {});
  connection_ = Connect(address_);
  RawSession before(connection_->channel());
  ASSERT_EQ(before.Ask(AllocRequest(1, 8)), absl::OkStatus());
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(Dial(address_));
  const auto other = Connect(address_);
  ASSERT_NE(other, nullptr);
  RawSession after(other->channel());
  EXPECT_EQ(after.Ask(AllocRequest(1, 8)), absl::OkStatus());
  EXPECT_EQ(before.Ask(AllocRequest(2, 8)), absl::OkStatus()) << "who was known stays";
  EXPECT_LT(Stat("telegrad_connections"), 256);
  EXPECT_GT(Stat("telegrad_connections"), 64);
  idle.clear();
  EXPECT_NE(Connect(address_), nullptr);
}

TEST_F(OperatorsTest, RaisesTheLimitOfDescriptors) {
  StartAfter("ulimit -Sn 64", {});
  std::ifstream limits(StrCat("/proc/", daemon_->pid(), "/limits"));
  for (std::string line; std::getline(limits, line);) {
    if (!line.starts_with("Max open files")) continue;
    std::istringstream in(line.substr(14));
    int64_t soft = 0, hard = 0;
    in >> soft >> hard;
    EXPECT_GT(soft, 64);
    EXPECT_EQ(soft, hard);
  }
}

// Of 16, at most 16 - 3 - 4 = 9 are left by the standard streams and the reserve of a quarter, and
// the daemon opens two or more itself before it counts, whatever the test inherited.
TEST_F(OperatorsTest, SaysWhereDescriptorsAreTooFew) {
  const testing::Output output = testing::RunProgram(
      "/bin/bash", {"-c", StrCat("ulimit -n 16; exec timeout 20 ", TELEGRADD,
                                 " --listen 127.0.0.1:0 --compile-workers 1 --log-level off")});
  EXPECT_EQ(output.exit_code, 1) << output.text;
  EXPECT_THAT(output.text, HasSubstr("ulimit -Hn"));
}

// Four of them blocked the library's page.
TEST_F(OperatorsTest, HalfSentRequestsDoNotBlockTheMetrics) {
  StartAfter(":", {});
  std::vector<UniqueFd> half;
  for (int i = 0; i < 200; ++i) {
    half.push_back(Dial("127.0.0.1:" + metrics_));
    ASSERT_EQ(send(half.back().get(), "GET /metrics HTTP/1.1\r\n", 23, MSG_NOSIGNAL), 23);
  }
  const std::string page = Get(metrics_, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(page, HasSubstr("200 OK"));
  EXPECT_THAT(page, HasSubstr("\n# TYPE telegrad_sessions gauge\ntelegrad_sessions 0\n"));
  EXPECT_TRUE(HangsUp(half.front()));
  EXPECT_TRUE(HangsUp(half.back())) << "its patience is over";
  EXPECT_THAT(Get(metrics_, "GET /other HTTP/1.1\r\n\r\n"), HasSubstr("404 Not Found"));
  EXPECT_THAT(Get(metrics_, "POST /metrics HTTP/1.1\r\n\r\n"), HasSubstr("405 "));
  EXPECT_THAT(Get(metrics_, "what\r\n\r\n"), HasSubstr("400 Bad Request"));
  EXPECT_THAT(Get(metrics_, std::string(9000, 'x')), HasSubstr("431 "));
}

// Of a call to `method`, with no message.
class SilentCall {
 public:
  SilentCall(const std::string& address, const std::string& method)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        stub_(channel_) {
    context_.set_wait_for_ready(true);
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    Next();
  }
  ~SilentCall() {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Next();
    return status;
  }

 private:
  void Next() {
    void* tag;
    bool ok;
    queue_.Next(&tag, &ok);
  }
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST_F(OperatorsTest, CallsThatNeverBeginEnd) {
  StartAfter(":", {"--handshake-time 300"});
  for (const char* method : {"/telegrad.v1.Compute/Execute", "/telegrad.v1.Data/Transfer",
                             "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                             "/telegrad.v1.Session/Hello"}) {
    const grpc::Status status = SilentCall(address_, method).Finish();
    EXPECT_EQ(status.error_code(), grpc::DEADLINE_EXCEEDED) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("no message came within 300 ms")) << method;
  }
  const grpc::Status reflection =
      SilentCall(address_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
          .Finish();
  EXPECT_EQ(reflection.error_code(), grpc::CANCELLED);
}

TEST_F(OperatorsTest, CallsThatHaveSaidNothingDoNotHoldUpTheEnd) {
  StartAfter(":", {"--handshake-time 600000", "--drain-seconds 600"});
  std::vector<std::unique_ptr<SilentCall>> calls;
  for (const char* method : {"/telegrad.v1.Compute/Execute", "/telegrad.v1.Data/Transfer",
                             "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    calls.push_back(std::make_unique<SilentCall>(address_, method));
  }
  connection_ = Connect(address_);
  Stat("telegrad_sessions");  // the calls before this one are known by now
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

TEST_F(OperatorsTest, AConnectionThatNeverBeginsEnds) {
  StartAfter(":", {"--handshake-time 300"});
  const UniqueFd silent = Dial(address_);
  EXPECT_TRUE(HangsUp(silent));
}

TEST_F(OperatorsTest, SighupReadsTenantsAgain) {
  const std::string file = StrCat(::testing::TempDir(), "tenants_", getpid());
  const auto write = [&](const std::string& text) {
    std::ofstream(file + ".new") << text;
    std::filesystem::rename(file + ".new", file);
  };
  write("[local]\nsessions = 1\n");
  StartAfter(":", {"--tenants " + file, "2>/dev/null"});
  connection_ = Connect(address_);
  RawSession first(connection_->channel());
  ASSERT_EQ(first.Ask(AllocRequest(1, 8)), absl::OkStatus());
  const auto second = [&] {
    RawSession session(connection_->channel());
    return session.Ask(AllocRequest(1, 8)).code();
  };
  const auto becomes = [&](Code code) {
    const auto deadline = std::chrono::steady_clock::now() + kLong;
    while (second() != code) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  };
  EXPECT_EQ(second(), Code::kResourceExhausted);
  write("[local]\nsessions = 2\n");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(becomes(Code::kOk));
  write("[local]\nsessions = what\n");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(becomes(Code::kOk)) << "a file that is wrong changes nothing";
  write("[local]\nsessions = 0\n");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(becomes(Code::kResourceExhausted));
  EXPECT_EQ(first.Ask(AllocRequest(2, 8)), absl::OkStatus()) << "who has more than may be keeps it";
  write("[other]\n");
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(becomes(Code::kPermissionDenied));
  EXPECT_EQ(first.Finish().code(), Code::kPermissionDenied) << "its tenant is served no more";
  std::filesystem::remove(file);
}

class WithdrawalTest : public AuthTest {
 protected:
  static absl::Status Opened(RawSession& session) { return session.Ask(AllocRequest(1, 8)); }
  std::shared_ptr<grpc::Channel> Channel(const ClientCredentials& credentials) {
    auto channel = OpenChannel(address_, credentials, /*bulk=*/false);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *channel;
  }
  // Signs a list of the certificates that are revoked now.
  void Revoke(const std::vector<std::string>& names) {
    std::string script =
        StrCat("set -e; cd ", keys_->path("."),
               "; rm -rf crl; mkdir crl; : >crl/index; echo 01 >crl/number\n",
               "printf '[ca]\\ndefault_ca=d\\n[d]\\ndatabase=crl/index\\ncrlnumber=crl/number\\n",
               "default_md=sha256\\ndefault_crl_days=30\\n' >crl/config\n");
    for (const std::string& name : names) {
      StrAppend(&script,
                "openssl ca -config crl/config -cert ca.pem -keyfile ca.key -revoke client-", name,
                ".pem\n");
    }
    StrAppend(&script,
              "openssl ca -config crl/config -cert ca.pem -keyfile ca.key -gencrl -out crl/new\n",
              "mv crl/new revoked.pem\n");
    const testing::Output output = testing::RunProgram("/bin/bash", {"-c", script});
    ASSERT_EQ(output.exit_code, 0) << output.text;
  }
};

TEST_F(WithdrawalTest, ARevokedCertificateEndsItsStreamsAndOpensNone) {
  Revoke({});
  Start({"--tls-client-ca", keys_->path("ca.pem"), "--tls-crl", keys_->path("revoked.pem")});
  RawSession alice(Channel(keys_->Certificate("alice"))), bob(Channel(keys_->Certificate("bob")));
  EXPECT_EQ(Opened(alice), absl::OkStatus());
  EXPECT_EQ(Opened(bob), absl::OkStatus());
  std::ofstream(keys_->path("revoked.pem")) << "damaged";
  EXPECT_EQ(Opened(bob).code(), Code::kInvalidArgument) << "the handle is in use: it goes on";
  Revoke({"bob"});
  const absl::Status end = bob.Finish();
  EXPECT_EQ(end.code(), Code::kUnauthenticated) << end;
  EXPECT_TRUE(absl::IsUnauthenticated(
      Call(address_, keys_->Certificate("bob"), "/telegrad.v1.Session/ListDevices")));
  EXPECT_EQ(alice.Ask(AllocRequest(2, 8)), absl::OkStatus());
}

TEST_F(WithdrawalTest, AWithdrawnKeyEndsTheStreamsThatItOpened) {
  std::filesystem::create_directory(keys_->path("mine"));
  std::filesystem::copy(
      keys_->path("jwt"), keys_->path("mine"),
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  Start({"--jwt-keys", keys_->path("mine")});
  const auto connection = *Connect(address_, keys_->WithToken(keys_->Token("alice")));
  const auto session = *connection->OpenSession();
  session->Alloc(1, 8);
  ASSERT_TRUE(session->Sync().Get().ok());
  for (const auto& file : std::filesystem::directory_iterator(keys_->path("mine"))) {
    std::filesystem::remove(file.path());
  }
  const auto deadline = std::chrono::steady_clock::now() + kLong;
  absl::Status status;
  while ((status = session->Sync().Get().status()).ok() &&
         std::chrono::steady_clock::now() < deadline) {
  }
  EXPECT_EQ(status.code(), Code::kUnauthenticated) << status;
}

TEST_F(WithdrawalTest, HalfAHandshakeEnds) {
  Start({"--tls-client-ca", keys_->path("ca.pem"), "--handshake-time", "300"});
  const UniqueFd half = Dial(address_);
  const char hello[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01};  // the beginning of one
  ASSERT_EQ(send(half.get(), hello, sizeof(hello), MSG_NOSIGNAL), 6);
  EXPECT_TRUE(HangsUp(half));
}

TEST_F(WithdrawalTest, ListsThatAreNoneAreRefusedAtTheStart) {
  const auto start = [&](const std::string& crl) {
    std::vector<std::string> args = {
        "--listen", "127.0.0.1:0", "--tls-client-ca", keys_->path("ca.pem"), "--tls-crl", crl};
    for (const std::string& flag : keys_->TlsFlags()) args.push_back(flag);
    return testing::RunProgram(TELEGRADD, args);
  };
  EXPECT_THAT(start(keys_->path("none")).text, HasSubstr("none: No such file"));
  EXPECT_THAT(start(keys_->path("ca.pem")).text, HasSubstr("expected a revocation list in PEM"));
}

// What has been revoked stays revoked while the file is written: of two lists half the second one
// is there.
TEST_F(WithdrawalTest, HalfAFileOfListsIsRefused) {
  Revoke({"bob"});
  const std::string file = keys_->path("revoked.pem");
  const testing::Output cut = testing::RunProgram(
      "/bin/bash", {"-c", StrCat("cd ", keys_->path("."),
                                 " && (cat revoked.pem; head -c 200 revoked.pem) >half.pem")});
  ASSERT_EQ(cut.exit_code, 0) << cut.text;
  std::vector<std::string> args = {"--listen",        "127.0.0.1:0",
                                   "--tls-client-ca", keys_->path("ca.pem"),
                                   "--tls-crl",       keys_->path("half.pem")};
  for (const std::string& flag : keys_->TlsFlags()) args.push_back(flag);
  EXPECT_THAT(testing::RunProgram(TELEGRADD, args).text,
              HasSubstr("half.pem: 2 lists begin, of which 1 can be parsed"));
}

}  // namespace
}  // namespace telegrad
