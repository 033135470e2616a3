// Tenants of a front on the server behind it: they are separated, each under its own name, and
// only those for which that server lets the front act are served.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/ir/content_hash.h"
#include "tests/remote/two_daemons.h"
#include "tests/server/auth_fixture.h"
#include "tests/server/device_workers.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

class FrontTenants : public AuthTest {
 protected:
  // What the far server's tenants may do.
  void StartBoth(const std::string& tenants, std::vector<std::string> more = {}) {
    const std::string file = keys_->path("tenants"), token = keys_->path("front.token");
    std::ofstream(file) << tenants;
    std::ofstream(token) << keys_->Token("front") << "\n";
    more.insert(more.end(), {"--jwt-keys", keys_->path("jwt"), "--tenants", file});
    Start(more);
    far_ = std::move(daemon_);
    far_address_ = address_;
    Start({"--jwt-keys", keys_->path("jwt"), "--remote", "b=" + far_address_, "--remote-tls-ca",
           keys_->path("ca.pem"), "--remote-token-file", token});
  }
  // A buffer on the far device, written: how that ended.
  absl::Status Use(const std::string& tenant) {
    const auto connection = Connect(address_, keys_->WithToken(keys_->Token(tenant)));
    EXPECT_TRUE(connection.ok()) << connection.status();
    if (!connection.ok()) return connection.status();
    const auto session = *(*connection)->OpenSession();
    const std::vector<int32_t> words = {1, 2, 3};
    std::vector<int32_t> out(3);
    session->Alloc(1, 12, "b/CPU:0");
    session->Write(1, 0, Bytes(words));
    const auto read = session->Read(1, 0, Writable(out));
    if (read.Get().ok()) {
      EXPECT_EQ(out, words);
    }
    return read.Get().status();
  }
  // A counter of that tenant on the far server.
  double There(const std::string& tenant, const std::string& metric) {
    const auto connection = Connect(far_address_, keys_->WithToken(keys_->Token(tenant)));
    return (*connection)->Stats()->at(metric);
  }

  std::unique_ptr<testing::Process> far_;
  std::string far_address_;
};

TEST_F(FrontTenants, AreApartUnderTheirOwnNames) {
  StartBoth("[front]\nacts_for = alice bob\n[alice]\n[bob]\ndevice_memory = 4\n");
  EXPECT_EQ(Use("alice"), absl::OkStatus());
  EXPECT_EQ(There("alice", "telegrad_written_bytes_total"), 12);
  EXPECT_EQ(There("front", "telegrad_written_bytes_total"), 0);
  // Under the quotas of that server.
  const absl::Status refused = Use("bob");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("device_memory of tenant bob"));
}

TEST_F(FrontTenants, AreThoseThatWereGranted) {
  StartBoth("[front]\nacts_for = alice\n[*]\n");
  EXPECT_EQ(Use("alice"), absl::OkStatus());
  const absl::Status refused = Use("bob");
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("tenant front may not act for others"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("acts_for"));
}

// A socket for its operations would be one too many: they stay with their call.
TEST_F(FrontTenants, HaveOperationsThoughTheyMayHaveOneStream) {
  StartBoth("[front]\nacts_for = alice\n[alice]\nstreams = 1\n[ops]\n");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Use("alice"), absl::OkStatus()) << i;
  const auto connection = Connect(far_address_, keys_->WithToken(keys_->Token("ops", {"--admin"})));
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ((*connection)->Stats()->at("telegrad_bulk_sockets_admitted_total"), 0);
}

// A graph is sent in a session of its own; of a tenant that may have one alone, in that.
TEST_F(FrontTenants, RunGraphsThoughTheyMayHaveOneSession) {
  StartBoth("[front]\nacts_for = alice\n[alice]\nsessions = 1\n");
  const auto connection = Connect(address_, keys_->WithToken(keys_->Token("alice")));
  ASSERT_TRUE(connection.ok()) << connection.status();
  const auto session = *(*connection)->OpenSession();
  const std::vector<int32_t> words = {1, 2, 3, 4};
  session->Alloc(1, 16, "b/CPU:0");
  session->Write(1, 0, Bytes(words));
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  const FrozenGraph graph = IncrementGraph(4);
  session->Put(graph.root());
  const uint64_t one[] = {1};
  for (int i = 0; i < 2; ++i) session->RunQuiet(ContentHash(graph.root()), one);
  std::vector<int32_t> out(4);
  ASSERT_TRUE(session->Read(1, 0, Writable(out)).Get().ok()) << session->status();
  EXPECT_EQ(out, (std::vector<int32_t>{3, 4, 5, 6}));
}

// What was under way ends, there, too; memory that was there is gone with its session.
TEST_F(FrontTenants, LoseWhatTheyHaveWithTheirGrant) {
  StartBoth("[front]\nacts_for = alice bob\n[*]\n", {"--session-grace", "3600000"});
  const auto connection = *Connect(address_, keys_->WithToken(keys_->Token("alice")));
  const auto session = *connection->OpenSession();
  const std::vector<int32_t> words = {1, 2, 3};
  std::vector<int32_t> out(3);
  session->Alloc(1, 12, "b/CPU:0");
  session->Write(1, 0, Bytes(words));
  ASSERT_EQ(session->Read(1, 0, Writable(out)).Get().status(), absl::OkStatus());
  std::ofstream(keys_->path("tenants")) << "[front]\nacts_for = bob\n[*]\n";
  far_->Signal(SIGHUP);
  absl::Status read;
  EXPECT_TRUE(Becomes([&] {
    read = session->Read(1, 0, Writable(out)).Get().status();
    return !read.ok();
  }));
  EXPECT_EQ(read.code(), absl::StatusCode::kPermissionDenied) << read;
  EXPECT_THAT(std::string(read.message()), HasSubstr("acts_for"));
  const auto ops = *Connect(far_address_, keys_->WithToken(keys_->Token("ops", {"--admin"})));
  EXPECT_TRUE(Becomes([&] { return ops->Stats()->at("telegrad_sessions") == 0; }));
}

// The credentials that the far server refuses are not the client's.
TEST_F(FrontTenants, AreNotToldThatTheirCredentialsAreWrong) {
  StartBoth("[front]\nacts_for = alice\n[*]\n");
  std::ofstream(keys_->path("front.token")) << "rubbish\n";
  const absl::Status refused = Use("alice");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the front's own credentials"));
}

// Nothing is implied: neither by being known nor by administering.
TEST_F(FrontTenants, AreNoneWithoutAGrant) {
  StartBoth("[*]\n");
  EXPECT_EQ(Use("alice").code(), absl::StatusCode::kPermissionDenied);
  ClientCredentials claims = keys_->WithToken(keys_->Token("ops", {"--admin"}));
  claims.acts_for = "alice";
  EXPECT_EQ(Connect(far_address_, claims).status().code(), absl::StatusCode::kPermissionDenied);
}

// Acting for an administrator's tenant makes nobody an administrator.
TEST_F(FrontTenants, AreNoAdministrators) {
  StartBoth("[front]\nacts_for = *\n[*]\n");
  EXPECT_EQ(Use("alice"), absl::OkStatus());
  ClientCredentials claims = keys_->WithToken(keys_->Token("front"));
  claims.acts_for = "ops";
  const auto connection = Connect(far_address_, claims);
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_EQ((*connection)->server().tenant, "ops");
  EXPECT_FALSE((*connection)->Stats()->contains("telegrad_sessions"));
}

// A session of a tenant that counts on a GPU of the far server.
class FarCounter {
 public:
  explicit FarCounter(Connection& connection) : session_(*connection.OpenSession()) {
    session_->Alloc(1, 16, "b/CUDA:0");
    session_->WriteCopy(1, 0, Bytes(std::vector<int32_t>(4)));
    session_->Put(graph_.root());
  }
  absl::Status Run() {
    const uint64_t handles[] = {1};
    return session_->Run(ContentHash(graph_.root()), handles).Get().status();
  }

 private:
  FrozenGraph graph_ = IncrementGraph(4);
  std::unique_ptr<RemoteSession> session_;
};

// A tenant whose worker on the far server has ended is told so as if it were here: the error names
// the worker, and the device is of the next generation, for this tenant alone.
TEST_F(FrontTenants, LearnWhatBecameOfTheirWorkersThere) {
  StartBoth("[front]\nacts_for = alice bob\n[alice]\n[bob]\n",
            {"--isolate", "tenant", "--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1",
             "--cuda-memory", "100000000"});
  const auto connect = [&](const std::string& tenant) {
    return *Connect(address_, keys_->WithToken(keys_->Token(tenant)));
  };
  const auto gpu = [](Connection& connection) {
    const auto devices = connection.ListDevices();
    EXPECT_TRUE(devices.ok()) << devices.status();
    for (const DeviceInfo& device : *devices) {
      if (device.name == "b/CUDA:0") return device;
    }
    return DeviceInfo{};
  };
  const auto alice = connect("alice"), bob = connect("bob");
  auto hers = std::make_unique<FarCounter>(*alice);
  ASSERT_EQ(hers->Run(), absl::OkStatus());
  std::set<pid_t> workers = DriversOf(far_->pid());
  ASSERT_EQ(workers.size(), 1u);
  FarCounter his(*bob);
  ASSERT_EQ(his.Run(), absl::OkStatus());
  std::set<pid_t> all = DriversOf(far_->pid());
  all.erase(*workers.begin());
  ASSERT_EQ(all.size(), 1u);
  const pid_t his_worker = *all.begin();
  const DeviceInfo hers_before = gpu(*alice), his_before = gpu(*bob);
  EXPECT_TRUE(hers_before.healthy);
  for (uint64_t loss = 1; loss <= 2; ++loss) {
    const pid_t dying = *workers.begin();
    kill(dying, SIGKILL);
    absl::Status status;
    while (status.ok()) status = hers->Run();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(StrCat("CUDA:0's worker of tenant alice (process ", dying, ")")));
    EXPECT_TRUE(Becomes([&] {
      const DeviceInfo now = gpu(*alice);
      return now.healthy && now.generation == hers_before.generation + loss &&
             now.memory_generation == hers_before.memory_generation + loss;
    })) << loss;
    EXPECT_TRUE(Becomes([&] {
      hers = std::make_unique<FarCounter>(*alice);
      return hers->Run().ok();
    }));
    EXPECT_EQ(his.Run(), absl::OkStatus());
    const DeviceInfo his_now = gpu(*bob);
    EXPECT_TRUE(his_now.healthy);
    EXPECT_EQ(his_now.generation, his_before.generation);
    EXPECT_EQ(his_now.memory_generation, his_before.memory_generation);
    workers = DriversOf(far_->pid());
    workers.erase(his_worker);
    ASSERT_EQ(workers.size(), 1u);
  }
}

// A tenant loses its session on the far server while its worker there is away, so nobody of it can
// ask how that is. When both may be again, it works, and is not kept out for what was last heard.
TEST_F(FrontTenants, ComeBackThoughTheirSessionEndedWhileTheirWorkerWasAway) {
  const std::string library = keys_->path("libcuda.so"), tenants = keys_->path("tenants");
  std::filesystem::copy_file(TELEGRAD_FAKE_CUDA, library);
  constexpr char kGranted[] = "[front]\nacts_for = alice\n[alice]\n[ops]\n";
  StartBoth(kGranted, {"--isolate", "tenant", "--cuda-library", library, "--cuda-devices", "1",
                       "--cuda-memory", "100000000"});
  const auto alice = *Connect(address_, keys_->WithToken(keys_->Token("alice")));
  const auto is_healthy = [&] {
    const auto devices = alice->ListDevices();
    return devices.ok() && std::ranges::any_of(*devices, [](const DeviceInfo& device) {
             return device.name == "b/CUDA:0" && device.healthy;
           });
  };
  auto hers = std::make_unique<FarCounter>(*alice);
  ASSERT_EQ(hers->Run(), absl::OkStatus());
  const std::set<pid_t> workers = DriversOf(far_->pid());
  ASSERT_EQ(workers.size(), 1u);
  std::filesystem::remove(library);  // no further one starts
  kill(*workers.begin(), SIGKILL);
  absl::Status status;
  while (status.ok()) status = hers->Run();
  ASSERT_TRUE(Becomes([&] { return !is_healthy(); }));
  std::ofstream(tenants) << "[front]\nacts_for = bob\n[alice]\n[ops]\n";
  far_->Signal(SIGHUP);
  const auto ops = *Connect(far_address_, keys_->WithToken(keys_->Token("ops", {"--admin"})));
  ASSERT_TRUE(Becomes([&] { return ops->Stats()->at("telegrad_sessions") == 0; }));
  std::filesystem::copy_file(TELEGRAD_FAKE_CUDA, library);
  std::ofstream(tenants) << kGranted;
  far_->Signal(SIGHUP);
  EXPECT_TRUE(Becomes([&] {
    hers = std::make_unique<FarCounter>(*alice);
    status = hers->Run();
    return status.ok();
  })) << status;
}

// From a server to another directly, under TLS: a tenant's buffer to the same tenant's session,
// under the quotas of both servers.
TEST_F(FrontTenants, CopyBetweenServersUnderTheirOwnQuotas) {
  const std::string token = keys_->path("front.token");
  std::ofstream(token) << keys_->Token("front") << "\n";
  const std::string common = "[front]\nacts_for = alice bob\n[alice]\n[ops]\n[bob]\n";
  std::vector<std::unique_ptr<testing::Process>> far;
  std::vector<std::string> addresses;
  for (const char* const of_bob : {"", "transfer_rate = 1\ntransfer_burst = 1\n"}) {
    const std::string file = keys_->path(StrCat("tenants", far.size()));
    std::ofstream(file) << common << of_bob;
    Start({"--jwt-keys", keys_->path("jwt"), "--tenants", file, "--peer", "127.0.0.1:*"});
    far.push_back(std::move(daemon_));
    addresses.push_back(address_);
  }
  Start({"--jwt-keys", keys_->path("jwt"), "--remote", "b=" + addresses[0], "--remote",
         "c=" + addresses[1], "--remote-tls-ca", keys_->path("ca.pem"), "--remote-token-file",
         token});
  const auto copied = [&](const std::string& tenant) {
    const auto connection = *Connect(address_, keys_->WithToken(keys_->Token(tenant)));
    const auto session = *connection->OpenSession();
    std::vector<uint8_t> bytes(1 << 20), out(bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
    session->Alloc(1, 1 << 20, "b/CPU:0");
    session->Alloc(2, 1 << 20, "c/CPU:0");
    session->Write(1, 0, Bytes(bytes));
    const Future<Done> done;
    session->CopyTold(2, 0, 1, 0, 1 << 20, done);
    if (tenant == "alice") {
      EXPECT_TRUE(session->Read(2, 0, Writable(out)).Get().ok()) << session->status();
      EXPECT_TRUE(out == bytes);
    }
    EXPECT_TRUE(session->Sync().Get().ok() || tenant != "alice") << session->status();
    return session->status();
  };
  const auto there = [&](size_t server, const std::string& caller, const std::string& metric) {
    return (*Connect(addresses[server], keys_->WithToken(caller)))->Stats()->at(metric);
  };
  EXPECT_EQ(copied("alice"), absl::OkStatus());
  const std::string ops = keys_->Token("ops", {"--admin"});
  EXPECT_EQ(there(0, ops, "telegrad_peer_sent_bytes_total"), 1 << 20);
  EXPECT_EQ(there(1, ops, "telegrad_peer_received_bytes_total"), 1 << 20);
  EXPECT_EQ(copied("bob"), absl::OkStatus()) << "the first one may be longer than the burst";
  const absl::Status refused = copied("bob");
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("c: transfer_rate of tenant bob"));
}

}  // namespace
}  // namespace telegrad
