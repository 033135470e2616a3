// Certificates, tokens and local users as ends of a real connection, and their renewal while the
// daemon runs.
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cstring>
#include <iterator>

#include "client/cc/remote_session.h"
#include "engine/base/unique_fd.h"
#include "engine/ir/content_hash.h"
#include "telegrad/v1/admin.grpc.pb.h"
#include "telegrad/v1/admin.pb.h"
#include "telegrad/v1/session.grpc.pb.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/auth_fixture.h"
#include "tests/server/double_graph.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;
using testing::Output;
using testing::RunProgram;

class CredentialsTest : public AuthTest {
 protected:
  // Repeats until it holds: what a daemon reads anew, it reads within a second or two.
  template <typename Holds>
  static bool Becomes(Holds holds) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
    }
    return true;
  }
  std::string TenantOf(const ClientCredentials& credentials) {
    const auto connection = Connect(address_, credentials);
    return connection.ok() ? (*connection)->server().tenant : connection.status().ToString();
  }
  void ThereAndBack(const ClientCredentials& credentials, bool sockets) {
    ConnectOptions options;
    options.timeout = absl::Seconds(20);
    options.credentials = credentials;
    options.bulk_sockets = sockets;
    const auto connection = Connection::Connect(address_, options);
    ASSERT_TRUE(connection.ok()) << connection.status();
    const auto session = *(*connection)->OpenSession();
    std::vector<uint32_t> data(4 << 20), back(data.size());
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint32_t>(i * 2654435761u);
    session->Alloc(1, static_cast<int64_t>(4 * data.size()));
    session->Write(1, 0, std::as_bytes(std::span(data)));
    const auto read = session->Read(1, 0, std::as_writable_bytes(std::span(back))).Get();
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(data == back);
  }
  bool Refused(const ClientCredentials& credentials) {
    return absl::IsUnauthenticated(Connect(address_, credentials).status());
  }
};

TEST_F(CredentialsTest, CertificatesStandForTenants) {
  Start({"--tls-client-ca", keys_->path("ca.pem")});
  EXPECT_EQ(TenantOf(keys_->Certificate("alice")), "alice");
  EXPECT_EQ(TenantOf(keys_->Certificate("bob")), "bob");
  // A handshake that fails reaches the client as UNAVAILABLE, whatever the reason.
  const Keys others("others");
  ClientCredentials stranger = others.Certificate("alice");
  stranger.tls_ca = keys_->path("ca.pem");
  for (const ClientCredentials& c : {stranger, keys_->WithToken(""), ClientCredentials{},
                                     ClientCredentials{.tls_ca = others.path("ca.pem")}}) {
    const absl::Status status = Call(address_, c, "/telegrad.v1.Session/Hello");
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
  // The server's own certificate is not a client's.
  ClientCredentials server = {.tls_ca = keys_->path("ca.pem"),
                              .tls_cert = keys_->path("server.pem"),
                              .tls_key = keys_->path("server.key")};
  EXPECT_FALSE(Connect(address_, server).ok());
  // And the client holds the server to its name.
  ClientCredentials elsewhere = keys_->Certificate("alice");
  elsewhere.tls_server_name = "elsewhere.example.org";
  EXPECT_TRUE(absl::IsUnavailable(Call(address_, elsewhere, "/telegrad.v1.Session/Hello")));
  elsewhere.tls_server_name = "localhost";
  EXPECT_EQ(TenantOf(elsewhere), "alice");
}

TEST_F(CredentialsTest, TenantsSeeNothingOfEachOther) {
  Start({"--tls-client-ca", keys_->path("ca.pem")});
  const auto alice = *Connect(address_, keys_->Certificate("alice"));
  const auto bob = *Connect(address_, keys_->Certificate("bob"));
  const auto of_alice = *alice->OpenSession(), of_bob = *bob->OpenSession();
  const FrozenGraph graph = DoubleGraph(16);
  const Digest hash = *of_alice->Put(graph.root()).Get();
  EXPECT_TRUE(*of_alice->Has(hash).Get());
  EXPECT_FALSE(*of_bob->Has(hash).Get());
  const auto stats = bob->Stats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->at("telegrad_graph_puts_total"), 0) << "alice's is not bob's";
  EXPECT_FALSE(stats->contains("telegrad_sessions"));
  std::vector<std::string> notes = {"what an administrator is told"};
  const auto devices = bob->ListDevices(&notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  for (const DeviceInfo& device : *devices) EXPECT_EQ(device.memory_used, 0);
  EXPECT_TRUE(notes.empty());
}

TEST_F(CredentialsTest, DiskRootsAreShownToThoseWhoAreGrantedThem) {
  const TemporaryDirectory folder;
  Start({"--tls-client-ca", keys_->path("ca.pem"), "--disk-root",
         StrCat("private=", folder.path().string())});
  const auto bob = *Connect(address_, keys_->Certificate("bob"));
  const auto devices = bob->ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  for (const DeviceInfo& device : *devices) EXPECT_EQ(device.name, "CPU:0");
  const auto session = *bob->OpenSession();
  session->Alloc(1, 1, "DISK:other");
  const absl::Status unknown = session->Sync().Get().status();
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;
  EXPECT_THAT(std::string(unknown.message()), ::testing::Not(::testing::HasSubstr("private")));
}

// Large tensors go over connections of their own: to the data listener, with the same credentials,
// or over bulk sockets under the keys that these have got.
TEST_F(CredentialsTest, TransfersShowThemToo) {
  Start({"--jwt-keys", keys_->path("jwt"), "--tls-client-ca", keys_->path("ca.pem")});
  for (const ClientCredentials& credentials :
       {keys_->Certificate("alice"), keys_->WithToken(keys_->Token("bob"))}) {
    for (const bool sockets : {true, false}) ThereAndBack(credentials, sockets);
  }
  const auto stats = (*Connect(admin_, keys_->Certificate("ops")))->Stats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_GE(stats->at("telegrad_bulk_sockets_admitted_total"), 2) << "one of each, at least";
}

TEST_F(CredentialsTest, AFileThatHasNoTokenIsAnError) {
  Start({"--jwt-keys", keys_->path("jwt")});
  std::ofstream(keys_->path("long.txt")) << std::string((1 << 20) + 1, 'x');
  std::ofstream(keys_->path("empty.txt")) << "\n";
  std::ofstream(keys_->path("two.txt")) << "one two\n";
  for (const char* file : {"jwt", "long.txt", "empty.txt", "two.txt", "none.txt"}) {
    const auto connection =
        Connect(address_, {.tls_ca = keys_->path("ca.pem"), .token_file = keys_->path(file)});
    EXPECT_TRUE(absl::IsInvalidArgument(connection.status()))
        << file << ": " << connection.status();
  }
}

TEST_F(CredentialsTest, TokensAreReadFromFilesAndTheirKeysComeAndGo) {
  std::filesystem::create_directory(keys_->path("rotating"));
  std::filesystem::copy_file(keys_->path("jwt/token.pem"), keys_->path("rotating/token.pem"));
  Start({"--jwt-keys", keys_->path("rotating"), "--jwt-issuer", "us"});
  const std::vector<std::string> us = {"--issuer", "us"};
  const std::string file = keys_->path("token.txt");
  std::ofstream(file) << keys_->Token("alice", us) << "\n";
  const ClientCredentials credentials = {.tls_ca = keys_->path("ca.pem"), .token_file = file};
  const auto connection = Connect(address_, credentials);
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ((*connection)->server().tenant, "alice");
  EXPECT_TRUE(Refused(keys_->WithToken(keys_->Token("alice"))));  // of no issuer
  EXPECT_TRUE(Refused(keys_->WithToken("")));

  // A second key comes, the first one goes.
  const Keys others("others");
  const ClientCredentials by_other =
      keys_->WithToken(others.Token("bob", {"--issuer", "us", "--kid", "next"}));
  EXPECT_TRUE(Refused(by_other));
  std::filesystem::copy_file(others.path("jwt/token.pem"), keys_->path("rotating/next.pem"));
  EXPECT_TRUE(Becomes([&] { return TenantOf(by_other) == "bob"; }));
  EXPECT_EQ(TenantOf(credentials), "alice");
  EXPECT_TRUE((*connection)->ListDevices().ok());
  std::filesystem::remove(keys_->path("rotating/token.pem"));
  EXPECT_TRUE(Becomes([&] { return Refused(credentials); }));
  EXPECT_TRUE(absl::IsUnauthenticated((*connection)->ListDevices().status()));
  // The client takes up the file's new content on the same connection.
  std::ofstream(file + ".new") << others.Token("alice", {"--issuer", "us", "--kid", "next"});
  std::filesystem::rename(file + ".new", file);
  EXPECT_TRUE((*connection)->ListDevices().ok());
}

TEST_F(CredentialsTest, CertificatesAreRenewedWithoutARestart) {
  Keys mine("renewed");
  const std::vector<std::string> tls = {"--tls-cert", mine.path("server.pem"), "--tls-key",
                                        mine.path("server.key")};
  std::ofstream(mine.path("tenants")) << "dns:worker.example.org research\n";
  std::vector<std::string> flags = tls;
  flags.insert(flags.end(),
               {"--tls-client-ca", mine.path("ca.pem"), "--tls-tenants", mine.path("tenants")});
  Start(flags);
  const ClientCredentials before = mine.Certificate("alice");
  EXPECT_EQ(TenantOf(before), "alice");
  // Everything of another authority takes the place of what there is.
  const Keys others("others");
  for (const char* file : {"server.key", "server.pem", "ca.pem"}) {
    std::filesystem::copy_file(others.path(file), mine.path("new"));
    std::filesystem::rename(mine.path("new"), mine.path(file));
  }
  EXPECT_TRUE(Becomes([&] { return TenantOf(others.Certificate("bob")) == "bob"; }));
  ClientCredentials old = before;
  old.tls_ca = others.path("ca.pem");
  EXPECT_TRUE(absl::IsUnavailable(Call(address_, old, "/telegrad.v1.Session/Hello")));
}

// The times that a file was opened. Closing is watched, too, because equal events in a row are one.
class Opens {
 public:
  explicit Opens(const std::string& path) : fd_(inotify_init1(IN_CLOEXEC)) {
    EXPECT_GE(inotify_add_watch(fd_.get(), path.c_str(), IN_OPEN | IN_CLOSE), 0);
  }
  void Await(int times) {
    while (times > 0) {
      alignas(inotify_event) char buffer[4096];
      const ssize_t n = read(fd_.get(), buffer, sizeof(buffer));
      ASSERT_GT(n, 0);
      for (ssize_t at = 0; at < n;) {
        const auto* const event = reinterpret_cast<const inotify_event*>(buffer + at);
        at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
        if ((event->mask & IN_OPEN) != 0) --times;
      }
    }
  }

 private:
  const UniqueFd fd_;
};

// Whoever writes them in place leaves half of one for a while.
TEST_F(CredentialsTest, FilesThatAreHalfWrittenChangeNothing) {
  Keys mine("half");
  Start({"--tls-cert", mine.path("server.pem"), "--tls-key", mine.path("server.key"),
         "--tls-client-ca", mine.path("ca.pem")});
  ClientCredentials alice = mine.Certificate("alice");
  alice.tls_ca = mine.path("kept.pem");
  std::filesystem::copy_file(mine.path("ca.pem"), alice.tls_ca);
  EXPECT_EQ(TenantOf(alice), "alice");
  for (const char* file : {"server.key", "server.pem", "ca.pem"}) {
    const std::string path = mine.path(file);
    std::ifstream in(path);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    in.close();
    {
      Opens opens(path);
      std::ofstream(path) << whole.substr(0, whole.size() / 2);
      // By this test, and twice by the daemon: what it has read the first time is in force by then.
      opens.Await(3);
    }
    EXPECT_EQ(TenantOf(alice), "alice") << file;
    std::ofstream(path) << whole;
  }
  // What is whole again, and new, is taken.
  const Keys others("half_others");
  for (const char* file : {"server.key", "server.pem", "ca.pem"}) {
    std::filesystem::copy_file(others.path(file), mine.path(file),
                               std::filesystem::copy_options::overwrite_existing);
  }
  EXPECT_TRUE(Becomes([&] { return TenantOf(others.Certificate("bob")) == "bob"; }));
}

TEST_F(CredentialsTest, NamesInCertificatesAreMappedByAFile) {
  const std::string file = keys_->path("tenants");
  std::ofstream(file) << "uri:telegrad://tenant/alice research\n";
  Start({"--tls-client-ca", keys_->path("ca.pem"), "--tls-tenants", file});
  EXPECT_EQ(TenantOf(keys_->Certificate("alice")), "research");
  std::ofstream(file + ".new") << "uri:telegrad://tenant/alice art\n";
  std::filesystem::rename(file + ".new", file);
  EXPECT_TRUE(Becomes([&] { return TenantOf(keys_->Certificate("alice")) == "art"; }));
  std::ofstream(file + ".new") << "this is not such a file\n";
  std::filesystem::rename(file + ".new", file);
  EXPECT_EQ(TenantOf(keys_->Certificate("alice")), "art");
}

// What the daemon's local socket says to a process of user `uid`.
std::string AskAs(uid_t uid, const std::string& path, const std::string& request) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const pid_t child = fork();
  if (child == 0) {  // calls nothing that is not safe here
    char answer[4096];
    ssize_t size = 0;
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if ((uid == geteuid() || setresuid(uid, uid, uid) == 0) &&
        connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      send(fd, request.data(), request.size(), MSG_NOSIGNAL);
      size = recv(fd, answer, sizeof(answer), 0);
    }
    _exit(size > 0 && write(ends[1], answer, static_cast<size_t>(size)) == size ? 0 : 1);
  }
  close(ends[1]);
  std::string answer(4096, '\0');
  const ssize_t size = read(ends[0], answer.data(), answer.size());
  close(ends[0]);
  waitpid(child, nullptr, 0);
  answer.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return answer;
}

TEST_F(CredentialsTest, LocalUsersGetTokens) {
  const std::string socket = keys_->path("local");
  Start({"--local-socket", socket});
  ClientCredentials credentials = {.tls_ca = keys_->path("ca.pem"), .local_socket = socket};
  const auto own = Connect(address_, credentials);
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ((*own)->server().tenant, "local");
  EXPECT_TRUE((*own)->Stats().ok()) << "the daemon's own user is an administrator";
  EXPECT_TRUE(Refused(keys_->WithToken("")));
  EXPECT_TRUE(Refused(keys_->WithToken(keys_->Token("alice")))) << "no keys are configured";
  for (const char* hostile : {"tokens", "token\n", " token", "nothing of this"}) {
    EXPECT_THAT(AskAs(geteuid(), socket, hostile), HasSubstr("error "));
  }
  EXPECT_THAT(AskAs(geteuid(), socket, std::string(5000, 'x')), HasSubstr("at most 4096 bytes"));
  EXPECT_EQ(RunProgram(TELEGRAD, {"devices", "--address", address_, "--tls-ca",
                                  keys_->path("ca.pem"), "--local-socket", socket})
                .exit_code,
            0);
}

TEST_F(CredentialsTest, LocalUsersAreToldApart) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be several users";
  const std::string socket = StrCat("/tmp/telegrad_local_", getpid());
  Start({"--local-socket", socket, "--local-users", "65533=guests"});
  const std::string guest = AskAs(65533, socket, "token");
  ASSERT_THAT(guest, HasSubstr("ok 900 "));
  EXPECT_EQ(TenantOf(keys_->WithToken(guest.substr(7))), "guests");
  const auto connection = Connect(address_, keys_->WithToken(guest.substr(7)));
  const auto stats = (*connection)->Stats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_FALSE(stats->contains("telegrad_sessions")) << "only administrators see everybody's";
  EXPECT_EQ(AskAs(65532, socket, "token"), "error this user is not known here");
}

TEST_F(CredentialsTest, AdministratorsSeeAndEndSessions) {
  Start({"--tls-client-ca", keys_->path("ca.pem")});
  const auto alice = *Connect(address_, keys_->Certificate("alice"));
  const auto bob = *Connect(address_, keys_->Certificate("bob"));
  const auto of_alice = *alice->OpenSession(), of_bob = *bob->OpenSession();
  of_alice->Alloc(1, 4096);
  ASSERT_TRUE(of_alice->Sync().Get().ok());
  ASSERT_TRUE(of_bob->Sync().Get().ok());

  const auto stub =
      v1::Admin::NewStub(*OpenChannel(admin_, keys_->Certificate("ops"), /*bulk=*/false));
  v1::ListSessionsResponse sessions;
  {
    grpc::ClientContext context;
    v1::ListSessionsRequest request;
    request.set_tenant("alice");
    ASSERT_TRUE(stub->ListSessions(&context, request, &sessions).ok());
  }
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).tenant(), "alice");
  {
    grpc::ClientContext context;
    v1::ListTenantsResponse tenants;
    ASSERT_TRUE(stub->ListTenants(&context, {}, &tenants).ok());
    bool found = false;
    for (const v1::TenantInfo& tenant : tenants.tenants()) {
      for (const v1::QuotaUse& quota : tenant.quotas()) {
        if (tenant.tenant() != "alice" || quota.name() != "sessions") continue;
        found = true;
        EXPECT_EQ(quota.used(), 1u);
      }
    }
    EXPECT_TRUE(found);
  }
  {
    grpc::ClientContext context;
    v1::CloseSessionsRequest request;
    request.set_session(sessions.sessions(0).session());
    v1::CloseSessionsResponse closed;
    ASSERT_TRUE(stub->CloseSessions(&context, request, &closed).ok());
    EXPECT_EQ(closed.closed(), 1u);
  }
  EXPECT_TRUE(absl::IsAborted(of_alice->Sync().Get().status())) << of_alice->status();
  EXPECT_TRUE(of_bob->Sync().Get().ok());
  {
    grpc::ClientContext context;
    v1::SetLogLevelRequest request;
    request.set_level("loud");
    v1::SetLogLevelResponse response;
    EXPECT_EQ(stub->SetLogLevel(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT);
  }
  grpc::ClientContext context;
  v1::DrainResponse drained;
  EXPECT_TRUE(stub->Drain(&context, {}, &drained).ok());
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

TEST_F(CredentialsTest, CommandLineShowsThem) {
  Start({"--jwt-keys", keys_->path("jwt"), "--tls-client-ca", keys_->path("ca.pem")});
  const std::vector<std::string> base = {"devices", "--address", address_, "--tls-ca",
                                         keys_->path("ca.pem")};
  const auto run = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return RunProgram(TELEGRAD, more);
  };
  EXPECT_EQ(
      run({"--tls-cert", keys_->path("client-bob.pem"), "--tls-key", keys_->path("client-bob.key")})
          .exit_code,
      0);
  std::ofstream(keys_->path("cli.txt")) << keys_->Token("bob");
  EXPECT_EQ(run({"--token-file", keys_->path("cli.txt")}).exit_code, 0);
  const Output nobody = run({});
  EXPECT_EQ(nobody.exit_code, 1);
  EXPECT_THAT(nobody.text, HasSubstr("requires credentials"));
  EXPECT_EQ(run({"--token-file", keys_->path("none")}).exit_code, 2);
  EXPECT_EQ(run({"--tls-cert", keys_->path("client-bob.pem")}).exit_code, 2);
  const Output clear = RunProgram(
      TELEGRAD, {"devices", "--address", "192.0.2.1:1", "--token-file", keys_->path("cli.txt")});
  EXPECT_EQ(clear.exit_code, 2);
  EXPECT_THAT(clear.text, HasSubstr("in the clear"));
  // Nor to a name that only begins like this machine's address.
  EXPECT_TRUE(absl::IsInvalidArgument(
      Connection::Connect("127.example.com:1", {.credentials = {.tls_ca = "", .token = "t"}})
          .status()));
}

TEST_F(CredentialsTest, FlagsThatLeaveTheDaemonOpenAreRefused) {
  const std::string cert = keys_->path("server.pem"), key = keys_->path("server.key");
  const struct {
    std::vector<std::string> args;
    std::string text;
  } kCases[] = {
      {{"--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key},
       "would not be authenticated"},
      {{"--listen", "0.0.0.0:0", "--jwt-keys", keys_->path("jwt")}, "in the clear"},
      {{"--data-listen", "0.0.0.0:0"}, "--data-listen 0.0.0.0:0: other machines"},
      {{"--bulk-listen", "0.0.0.0:0"}, "--bulk-listen 0.0.0.0:0: other machines"},
      {{"--bulk-listen", "unix:/tmp/x"},
       "--bulk-listen unix:/tmp/x: expected HOST:PORT, because bulk sockets"},
      {{"--bulk-listen", "nowhere"}, "\"nowhere\" is not an address"},
      {{"--bulk-sockets", "0"}, "--bulk-sockets: 0 is not from 1 to"},
      {{"--admin-listen", "0.0.0.0:0"}, "--admin-listen 0.0.0.0:0: other machines"},
      {{"--tls-cert", cert}, "--tls-cert needs --tls-key"},
      {{"--tls-key", key}, "--tls-key needs --tls-cert"},
      {{"--tls-client-ca", cert}, "--tls-client-ca needs --tls-cert"},
      {{"--tls-tenants", cert}, "--tls-tenants needs --tls-client-ca"},
      {{"--jwt-issuer", "x"}, "--jwt-issuer needs --jwt-keys"},
      {{"--local-users", "1=a"}, "--local-users needs --local-socket"},
      {{"--local-socket", keys_->path("l"), "--local-users", "x=a"}, "expected UID=TENANT"},
      {{"--local-socket", keys_->path("l"), "--local-users", "1=/"}, "expected UID=TENANT"},
      {{"--jwt-keys", "/dev/null/none"}, "cannot be read as a folder"},
      {{"--tls-cert", key, "--tls-key", key}, "expected a certificate in PEM"},
      {{"--tls-cert", cert, "--tls-key", keys_->path("client-bob.key")}, "not the key of"},
      {{"--tls-cert", cert, "--tls-key", cert}, "expected a private key in PEM"},
      {{"--tls-cert", "/dev/null/none", "--tls-key", key}, "/dev/null/none: Not a directory"},
  };
  for (const auto& c : kCases) {
    const Output output = RunProgram(TELEGRADD, c.args);
    EXPECT_EQ(output.exit_code, 2) << output.text;
    EXPECT_THAT(output.text, HasSubstr(c.text));
  }
}

}  // namespace
}  // namespace telegrad
