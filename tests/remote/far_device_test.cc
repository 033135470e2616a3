// A far device is shown, fails, and is traced as on its own server, and is reached by every way to
// authenticate that a front has.
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "devices/remote/remote_device.h"
#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"
#include "tests/remote/fake_server.h"
#include "tests/remote/two_daemons.h"
#include "tests/server/auth_fixture.h"

namespace telegrad {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kFarName = "b/CPU:0";

// --- what is shown ---

// The rest of the line that begins with `name`.
std::string RowOf(const std::string& address, const std::string& name) {
  const testing::Output output = testing::RunProgram(TELEGRAD, {"devices", "--address", address});
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const size_t at = output.text.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << output.text;
  return at == std::string::npos
             ? ""
             : output.text.substr(at + 1, output.text.find('\n', at + 1) - at - 1);
}

TEST_F(TwoDaemons, AFarDeviceShowsWhatItShowsOnItsOwnServer) {
  const auto theirs = there_->ListDevices();
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  const DeviceInfo &own = theirs->front(), far = Device(kFarName);
  EXPECT_EQ(far.target, own.target);
  EXPECT_EQ(far.rates, own.rates);
  EXPECT_FALSE(far.rates.empty());
  EXPECT_EQ(far.kind, own.kind);
  EXPECT_EQ(far.threads, own.threads);
  EXPECT_EQ(far.memory_limit, own.memory_limit);

  // One long copy, by which the link is measured.
  const std::vector<int32_t> words(1 << 20, 7);
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 4 << 20, kFarName);
  session->Write(1, 0, Bytes(words));
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  EXPECT_TRUE(Becomes([&] {
    const DeviceInfo device = Device(kFarName);
    return device.round_trip_ns > 0 && device.bytes_per_second > 0;
  }));
  const std::string there = RowOf(far_->address(), "CPU:0"),
                    here = RowOf(front_->address(), kFarName);
  const std::string shown = there.substr(there.find("GiB  ") + 5);
  EXPECT_THAT(shown, ContainsRegex("[0-9]+-bit vectors.*, f32 [0-9.e+-]+ T/s"));
  EXPECT_THAT(here, HasSubstr("  " + shown + ", round trip "));
  EXPECT_THAT(here, ContainsRegex("round trip [0-9.]+ ms, [0-9]+ MiB/s$"));
}

// That the far device declares rates changes neither how copies are cut nor what runs are predicted
// to take: its link is no memory.
TEST_F(TwoDaemons, TheRatesOfAFarDeviceAreThoseOfItsArithmetic) {
  const auto devices = *OpenRemote({.name = "r", .address = far_->address()}, nullptr);
  const Rates rates = devices[0]->rates();
  EXPECT_GT(rates.launch_flops(), 0);
  EXPECT_EQ(rates.bytes, 0);
  EXPECT_EQ(rates.iterations, 1);
}

TEST(FarTarget, IsWhatTheServerSaysAsFarAsItCanBe) {
  FakeServer server;
  const std::vector<std::string> said = {
      "sm_90a, 128-bit vectors, code by ptxas 12.4",
      "x86-64 znver4, 512-bit vectors",
      "x86-64",
      "",
      "x\ny, 99999999999999999999-bit vectors",
      "x86-64 a b, -8-bit vectors, c",
      std::string(100'000, 'x'),
  };
  server.session.more = [&](v1::ListDevicesResponse* response) {
    for (size_t i = 0; i < said.size(); ++i) {
      v1::Device* device = response->add_devices();
      device->set_name(StrCat("GPU:", i));
      device->set_target(said[i]);
      device->set_healthy(true);
      for (const auto& [kind, rate] : std::vector<std::pair<std::string, double>>{
               {"f32", 1e12}, {"f64", -1}, {"i8", std::nan("")}, {"i32", HUGE_VAL}, {"no", 1}}) {
        v1::OperationRate* row = device->add_rates();
        row->set_kind(kind);
        row->set_per_second(rate);
      }
    }
  };
  const auto devices = OpenRemote(server.Options("r"), nullptr);
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1 + said.size());
  const auto target = [&](size_t i) -> const Target& { return (*devices)[1 + i]->target(); };
  EXPECT_EQ(target(0).arch, "sm_90a");
  EXPECT_EQ(target(0).cpu, "");
  EXPECT_EQ(target(0).vector_bytes, 16);
  EXPECT_EQ(target(0).features, ", code by ptxas 12.4");
  EXPECT_EQ(target(1).arch, "x86-64");
  EXPECT_EQ(target(1).cpu, "znver4");
  EXPECT_EQ(target(1).vector_bytes, 64);
  EXPECT_EQ(target(1).features, "");
  EXPECT_EQ(target(2).arch, "x86-64");
  EXPECT_EQ(target(3).arch, "");
  EXPECT_EQ(target(4).arch, "x\\ny");
  for (size_t i = 2; i < said.size(); ++i) EXPECT_EQ(target(i).vector_bytes, 16) << i;
  for (size_t i = 0; i < said.size(); ++i) {
    EXPECT_LT(target(i).arch.size() + target(i).cpu.size() + target(i).features.size(), 300u);
    const Rates rates = (*devices)[1 + i]->rates();
    EXPECT_EQ(rates.flops, (ArithmeticRates{{Arithmetic::kVectorF32, 1e12}}));
  }
}

// --- errors ---

// A graph that is refused when it is compiled: it adds what every device has whole.
FrozenGraph RefusedGraph() {
  Graph g;
  const UOp a = g.Param(0, DType::kInt32, Shape{4}, 0), b = g.Param(1, DType::kInt32, Shape{4}, 1);
  const UOp shards = g.Make(Op::kMStack, DType::kVoid, {a, b});
  const UOp all = g.Make(Op::kAllReduce, DType::kVoid, {g.Make(Op::kUnshard, {shards}, Shape{0})},
                         {static_cast<int64_t>(ReduceKind::kAdd)});
  const UOp out = g.Param(2, DType::kInt32, Shape{8}, 0);
  const UOp one = g.Make(Op::kMSelect, DType::kVoid, {all}, {0});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, one})}));
}

// How a run of it ends, without the number of the operation.
std::string RefusalOf(Connection& connection, const std::string& device, const FrozenGraph& graph) {
  const auto session = *connection.OpenSession();
  for (const uint64_t handle : {1, 2, 3}) session->Alloc(handle, 32, device);
  session->Put(graph.root());
  const uint64_t handles[] = {1, 2, 3};
  const absl::Status status = session->Run(ContentHash(graph.root()), handles).Get().status();
  EXPECT_FALSE(status.ok());
  const std::string text(status.message());
  return StrCat(static_cast<int>(status.code()), " ", text.substr(text.find("): ") + 3));
}

TEST_F(TwoDaemons, AGraphThatIsRefusedThereIsNamedAsHere) {
  const FrozenGraph graph = RefusedGraph();
  const std::string there = RefusalOf(*there_, "CPU:0", graph),
                    through = RefusalOf(*connection_, kFarName, graph);
  ASSERT_THAT(there, HasSubstr("allreduce: every one of 2 devices has the whole value"));
  EXPECT_THAT(through, HasSubstr(there.substr(there.find("allreduce: "))));
  EXPECT_EQ(through.substr(0, 2), there.substr(0, 2)) << through << "\n" << there;
}

// What is no graph, node by node: the far server's words have the node and the reason.
TEST_F(TwoDaemons, ANodeThatIsRefusedThereIsNamedAsHere) {
  const auto devices = *OpenRemote({.name = "r", .address = far_->address()}, nullptr);
  const std::string good = GraphBytes(IncrementGraph(4).root());
  int named = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bytes = good;
    bytes[i] = static_cast<char>(bytes[i] ^ 1);
    Budget budget;
    const auto here = GraphFromBytes(bytes, &budget);
    if (here.ok() || here.status().message().find("node ") == std::string::npos) continue;
    ++named;
    const auto there = devices[0]->Load({.name = "x", .binary = bytes});
    EXPECT_EQ(there.status().code(), here.status().code()) << there.status();
    EXPECT_THAT(std::string(there.status().message()),
                HasSubstr(std::string(here.status().message())));
  }
  EXPECT_GT(named, 3);
}

// --- traces ---

TEST_F(TwoDaemons, ATraceOfARunThereNamesItsKernels) {
  const auto trace = [](Connection& connection, const std::string& device) {
    const auto session = *connection.OpenSession();
    const FrozenGraph graph = IncrementGraph(1 << 16);
    session->Alloc(1, 4 << 16, device);
    session->Put(graph.root());
    const uint64_t handles[] = {1};
    const auto run = session->RunTraced(ContentHash(graph.root()), handles);
    EXPECT_TRUE(run.Get().ok()) << run.Get().status();
    return run.Get().ok() && run.Get()->trace != nullptr ? *run.Get()->trace : RunEvents();
  };
  const RunEvents own = trace(*there_, "CPU:0"), far = trace(*connection_, kFarName);
  ASSERT_FALSE(own.events.empty());
  ASSERT_EQ(far.events.size(), own.events.size());
  for (size_t i = 0; i < own.events.size(); ++i) {
    EXPECT_EQ(far.events[i].name, own.events[i].name);
    EXPECT_FALSE(far.events[i].name.empty());
    EXPECT_EQ(far.events[i].copy, own.events[i].copy);
    EXPECT_EQ(far.events[i].flops, own.events[i].flops);
    EXPECT_EQ(far.events[i].bytes, own.events[i].bytes);
    EXPECT_GT(far.events[i].duration_ns, 0);
    EXPECT_EQ(far.events[i].queue, "b/" + own.events[i].queue);
  }
}

// --- quotas ---

// The front's own limit refuses it, and the far server is not asked.
TEST_F(TwoDaemons, ABufferThereIsUnderTheQuotaHere) {
  Start({"--default-quota", "device_memory=1MiB"}, {});
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 8 << 20, kFarName);
  const absl::Status refused = session->Sync().Get().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("device_memory of tenant local"));
  EXPECT_THAT(std::string(refused.message()), Not(HasSubstr("the limit is of the server at")));
  EXPECT_EQ(There("telegrad_buffers"), 0);
}

// --- ways to authenticate ---

// Writes and reads a buffer of that device: how that ended.
absl::Status UseDevice(const absl::StatusOr<std::shared_ptr<Connection>>& connection,
                       const std::string& device) {
  if (!connection.ok()) return connection.status();
  const auto session = *(*connection)->OpenSession();
  const std::vector<int32_t> words = {1, 2, 3};
  std::vector<int32_t> out(3);
  session->Alloc(1, 12, device);
  session->Write(1, 0, Bytes(words));
  const auto read = session->Read(1, 0, Writable(out));
  if (read.Get().ok()) {
    EXPECT_EQ(out, words);
  }
  return read.Get().status();
}

TEST(FarSocket, IsReachedByItsPath) {
  const std::string path = StrCat("unix:", ::testing::TempDir(), "far_", getpid());
  const RunningDaemon far({"--bulk-listen", "none"}, path);
  const RunningDaemon front({"--remote", "b=" + path});
  EXPECT_EQ(UseDevice(Connection::Connect(front.address()), kFarName), absl::OkStatus());
  const auto there = Connection::Connect(path);
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ((*there)->Stats()->at("telegrad_written_bytes_total"), 12);
}

class FrontCredentials : public AuthTest {
 protected:
  // The far server, with `how` it knows callers, and a front that shows it `front`.
  void StartBoth(const std::string& tenants, std::vector<std::string> how,
                 std::vector<std::string> front) {
    const std::string file = keys_->path("tenants");
    std::ofstream(file) << tenants;
    how.insert(how.end(), {"--tenants", file, "--log-level", "info"});
    Start(how);
    far_ = std::move(daemon_);
    far_address_ = address_;
    front.insert(front.end(), {"--jwt-keys", keys_->path("jwt"), "--remote", "b=" + far_address_,
                               "--remote-tls-ca", keys_->path("ca.pem")});
    Start(front);
  }
  absl::Status Use(const std::string& tenant) {
    return UseDevice(Connect(address_, keys_->WithToken(keys_->Token(tenant))), kFarName);
  }
  // Everything that the far server has logged, which ends it.
  std::string FarLog() {
    daemon_.reset();
    far_->Signal(SIGTERM);
    return far_->Wait().text;
  }

  std::unique_ptr<testing::Process> far_;
  std::string far_address_;
};

// The log of the far server names the tenant for which the front acts, in the line of her session.
TEST_F(FrontCredentials, MayBeACertificate) {
  StartBoth("[alice]\nacts_for = bob\n[bob]\n", {"--tls-client-ca", keys_->path("ca.pem")},
            {"--remote-tls-cert", keys_->path("client-alice.pem"), "--remote-tls-key",
             keys_->path("client-alice.key")});
  EXPECT_EQ(Use("bob"), absl::OkStatus());
  const std::string log = FarLog();
  EXPECT_THAT(log, ContainsRegex("session_opened[^\n]*bob"));
  EXPECT_THAT(log, Not(ContainsRegex("session_opened[^\n]*\"tenant\": ?\"alice\"")));
}

TEST_F(FrontCredentials, MayBeTheUserThatItRunsAs) {
  const std::string socket = keys_->path("far.socket");
  StartBoth("[local]\nacts_for = alice\n[alice]\n", {"--local-socket", socket},
            {"--remote-local-socket", socket});
  EXPECT_EQ(Use("alice"), absl::OkStatus());
  EXPECT_EQ(Use("bob").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(FarLog(), ContainsRegex("session_opened[^\n]*alice"));
}

}  // namespace
}  // namespace telegrad
