// Buffers are sent from one far server directly to another, not through the front. Collectives over
// several servers send the bytes that their formula states, and give the bits of local devices.
#include <signal.h>

#include "client/cc/remote_plan.h"
#include "engine/base/device_lost.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "engine/schedule/collectives.h"
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

using ::testing::HasSubstr;

// Some servers that send to each other, each behind a proxy, and a front that knows all of them.
class BetweenServers : public ::testing::Test {
 protected:
  void Start(int servers, std::vector<std::string> front = {},
             const std::vector<std::string>& far = {"--peer", "127.0.0.1:*"}) {
    for (int i = 0; i < servers; ++i) {
      far_.push_back(std::make_unique<RunningDaemon>(far));
      proxies_.push_back(std::make_unique<fakes::CuttingProxy>(far_.back()->address()));
      there_.push_back(*Connection::Connect(far_.back()->address()));
      const std::string name(1, static_cast<char>('a' + i));
      front.insert(front.end(), {"--remote", name + "=" + proxies_.back()->address()});
      devices_.push_back(name + "/CPU:0");
    }
    front_ = std::make_unique<RunningDaemon>(front);
    connection_ = *Connection::Connect(front_->address());
  }
  double There(size_t server, const std::string& metric) const {
    return there_[server]->Stats()->at(metric);
  }
  std::vector<int64_t> Sent() const {
    std::vector<int64_t> sent;
    for (size_t i = 0; i < there_.size(); ++i) {
      sent.push_back(static_cast<int64_t>(There(i, "telegrad_peer_sent_bytes_total")));
    }
    return sent;
  }
  int64_t ThroughProxies() const {
    int64_t bytes = 0;
    for (const auto& proxy : proxies_) bytes += proxy->bytes_up() + proxy->bytes_down();
    return bytes;
  }
  // What a client left is gone a moment later, on the front and on all servers.
  void ExpectNothingLeft() {
    for (size_t i = 0; i < there_.size(); ++i) {
      for (const char* metric : {"telegrad_buffer_bytes", "telegrad_staged_bytes"}) {
        EXPECT_TRUE(Becomes([&] { return There(i, metric) == 0; })) << i << " " << metric;
      }
    }
  }

  std::vector<std::unique_ptr<RunningDaemon>> far_;
  std::vector<std::unique_ptr<fakes::CuttingProxy>> proxies_;
  std::vector<std::shared_ptr<Connection>> there_;
  std::vector<std::string> devices_;
  std::unique_ptr<RunningDaemon> front_;
  std::shared_ptr<Connection> connection_;
};

std::vector<int32_t> Numbers(size_t count, uint32_t seed) {
  std::vector<int32_t> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<int32_t>((i + seed) * 2654435761u) >> 4;
  }
  return out;
}

TEST_F(BetweenServers, ACopyDoesNotPassThroughTheFront) {
  Start(2);
  const auto in = Numbers(8 << 20, 1);
  const auto bytes = static_cast<int64_t>(in.size() * 4);
  const auto session = *connection_->OpenSession();
  session->Alloc(1, bytes, devices_[0]);
  session->Alloc(2, bytes, devices_[1]);
  session->Write(1, 0, Bytes(in));
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  const int64_t before = ThroughProxies();
  const double written = There(1, "telegrad_written_bytes_total");
  // The front's own, for operations, may come after the first ones.
  EXPECT_TRUE(Becomes([&] { return There(1, "telegrad_bulk_sockets_admitted_total") >= 1; }));
  const double sockets = There(1, "telegrad_bulk_sockets_admitted_total");
  const Future<Done> copied;
  session->CopyTold(2, 0, 1, 0, bytes, copied);
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  EXPECT_TRUE(copied.Get().ok());
  // Tickets, operations and health checks.
  EXPECT_LT(ThroughProxies() - before, 256 << 10);
  EXPECT_EQ(Sent(), (std::vector<int64_t>{bytes, 0}));
  EXPECT_EQ(There(1, "telegrad_peer_received_bytes_total"), static_cast<double>(bytes));
  EXPECT_EQ(There(1, "telegrad_written_bytes_total") - written, static_cast<double>(bytes));
  EXPECT_EQ(There(1, "telegrad_bulk_sockets_admitted_total") - sockets, 1) << "it is one transfer";
  EXPECT_EQ(There(0, "telegrad_read_bytes_total"), 0) << "nobody has read it from there";
  std::vector<int32_t> out(in.size(), -1);
  ASSERT_TRUE(session->Read(2, 0, Writable(out)).Get().ok()) << session->status();
  EXPECT_TRUE(in == out);
}

// There and back many times, behind runs, with nobody waiting in between.
TEST_F(BetweenServers, CopiesKeepTheOrderOfRuns) {
  Start(2);
  constexpr int kRounds = 10;
  const FrozenGraph graph = IncrementGraph(4);
  {
    const auto session = *connection_->OpenSession();
    session->Alloc(1, 16, devices_[0]);
    session->Alloc(2, 16, devices_[1]);
    session->Put(graph.root());
    const uint64_t one[] = {1}, two[] = {2};
    for (int i = 0; i < kRounds; ++i) {
      session->RunQuiet(ContentHash(graph.root()), one);
      session->CopyTold(2, 0, 1, 0, 16, Future<Done>());
      session->RunQuiet(ContentHash(graph.root()), two);
      session->CopyTold(1, 0, 2, 0, 16, Future<Done>());
    }
    std::vector<int32_t> out(4, -1);
    ASSERT_TRUE(session->Read(1, 0, Writable(out)).Get().ok()) << session->status();
    EXPECT_EQ(out, std::vector<int32_t>(4, 2 * kRounds));
    EXPECT_EQ(Sent(), (std::vector<int64_t>{16 * kRounds, 16 * kRounds}));
  }
  ExpectNothingLeft();
}

// Both directions at once, in parts, which wait for nothing of each other.
TEST_F(BetweenServers, SwappedHalvesCrossEachOther) {
  Start(2);
  const auto a = Numbers(1 << 20, 1), b = Numbers(1 << 20, 2);
  const auto session = *connection_->OpenSession();
  for (uint64_t handle = 1; handle <= 4; ++handle) {
    session->Alloc(handle, 4 << 20, devices_[(handle - 1) % 2]);
  }
  session->Write(1, 0, Bytes(a));
  session->Write(2, 0, Bytes(b));
  constexpr int64_t kPart = 1 << 20;
  for (int64_t at = 0; at < 4 << 20; at += kPart) {
    session->CopyTold(4, at, 1, at, kPart, Future<Done>());
    session->CopyTold(3, at, 2, at, kPart, Future<Done>());
  }
  std::vector<int32_t> at_a(a.size()), at_b(b.size());
  const auto read = session->Read(3, 0, Writable(at_a));
  ASSERT_TRUE(session->Read(4, 0, Writable(at_b)).Get().ok()) << session->status();
  ASSERT_TRUE(read.Get().ok());
  EXPECT_TRUE(at_a == b);
  EXPECT_TRUE(at_b == a);
}

// The sum of an input of each device, which each device then has.
FrozenGraph AllReduceGraph(int64_t elements, int64_t devices) {
  Graph g;
  std::vector<UOp> shards, stores;
  for (int64_t d = 0; d < devices; ++d) {
    shards.push_back(g.Param(static_cast<int32_t>(d), DType::kInt32, Shape{elements}, d));
  }
  const UOp all =
      g.Make(Op::kAllReduce, DType::kVoid, {g.Make(Op::kMStack, DType::kVoid, shards)}, {0});
  for (int64_t d = 0; d < devices; ++d) {
    const UOp out = g.Param(static_cast<int32_t>(devices + d), DType::kInt32, Shape{elements}, d);
    stores.push_back(g.Make(Op::kStore, {out, g.Make(Op::kMSelect, DType::kVoid, {all}, {d})}));
  }
  return Freeze(g.Make(Op::kSink, DType::kVoid, stores));
}

// Chunks of nearly the same size, so that each server sends to its neighbour what the formula says.
TEST_F(BetweenServers, AnAllReduceIsARingOverTheirLinks) {
  constexpr int64_t kServers = 4, kElements = (1 << 15) + 3;
  Start(kServers);
  const FrozenGraph graph = AllReduceGraph(kElements, kServers);
  const auto session = *connection_->OpenSession();
  std::vector<std::vector<int32_t>> in;
  std::vector<uint64_t> handles;
  for (uint64_t i = 0; i < 2 * kServers; ++i) {
    session->Alloc(i + 1, kElements * 4, devices_[i % kServers]);
    handles.push_back(i + 1);
    if (i >= kServers) continue;
    in.push_back(Numbers(kElements, static_cast<uint32_t>(i)));
    session->Write(i + 1, 0, Bytes(in.back()));
  }
  session->Put(graph.root());
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  const int64_t before = ThroughProxies();
  const auto run = session->Run(ContentHash(graph.root()), handles);
  ASSERT_TRUE(run.Get().ok()) << run.Get().status();
  const int64_t through_front = ThroughProxies() - before;
  std::vector<int32_t> want(kElements, 0);
  for (const auto& one : in) {
    for (size_t i = 0; i < want.size(); ++i) want[i] += one[i];
  }
  for (uint64_t i = 0; i < kServers; ++i) {
    std::vector<int32_t> out(kElements);
    ASSERT_TRUE(session->Read(kServers + i + 1, 0, Writable(out)).Get().ok());
    EXPECT_TRUE(out == want) << i;
  }
  const auto chunk = [](int64_t c) { return 4 * ChunkOf(kElements, kServers, c % kServers).size; };
  std::vector<int64_t> sent;
  for (int64_t i = 0; i < kServers; ++i) {
    sent.push_back(2 * 4 * kElements - chunk(i + 1) - chunk(i + 2));
  }
  EXPECT_EQ(Sent(), sent);
  for (int64_t i = 0; i < kServers; ++i) {
    // From its neighbour alone: what the one before it has sent.
    EXPECT_EQ(There(static_cast<size_t>(i), "telegrad_peer_received_bytes_total"),
              static_cast<double>(sent[(i + kServers - 1) % kServers]));
  }
  // Graphs and messages, and none of the half megabyte that a star through the front would carry.
  EXPECT_LT(through_front, 200 << 10);
}

// A step of two layers over the devices 1 to 4, of which the first's weights are split by columns.
absl::StatusOr<Plan> Step() {
  Builder b;
  const Tensor x = b.Param(DType::kFloat32, {8, 16}, "x");
  const Tensor w = b.Param(DType::kFloat32, {16, 12}, "w");
  const Tensor v = b.Param(DType::kFloat32, {12, 4}, "v");
  const std::vector<int64_t> devices = {1, 2, 3, 4};
  const Tensor hidden = x.Shard(devices).MatMul(w.Shard(devices, 1)).Relu();
  const Tensor y = hidden.MatMul(v.Shard(devices, 0));
  const Tensor loss = (y * y).Sum().To(0);
  const Tensor wrt[] = {w, v};
  const std::vector<Tensor> grads = Gradients(loss, wrt);
  b.Output(loss, "loss");
  b.Output(grads[0].To(0), "dw");
  b.Output(grads[1].To(0), "dv");
  return b.Finish();
}

HostTensor Fractions(const Shape& shape, int period) {
  std::vector<float> values(static_cast<size_t>(NumElements(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i) % period - period / 2) / 7;
  }
  return HostTensor::Of<float>(shape, std::span<const float>(values));
}

TEST_F(BetweenServers, AShardedModelGivesTheResultsOfLocalDevices) {
  Start(4);  // beside its own CPU:0
  const RunningDaemon local({"--cpu-devices", "5"});
  const std::map<std::string, HostTensor> inputs = {
      {"x", Fractions({8, 16}, 7)}, {"w", Fractions({16, 12}, 5)}, {"v", Fractions({12, 4}, 11)}};
  const auto plan = Step();
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto run = [&](const std::shared_ptr<Connection>& connection) {
    const auto session = *connection->OpenSession();
    RemoteState state(session.get());
    auto got = Evaluate(session.get(), &state, *plan, inputs);
    EXPECT_TRUE(got.ok()) << got.status();
    return got.ok() ? *std::move(got) : std::map<std::string, HostTensor>();
  };
  auto want = run(*Connection::Connect(local.address())), got = run(connection_);
  EXPECT_GT(want["loss"].AsDoubles()[0], 0);
  for (const char* name : {"loss", "dw", "dv"}) EXPECT_TRUE(got[name] == want[name]) << name;
  int64_t sent = 0;
  for (const int64_t bytes : Sent()) sent += bytes;
  EXPECT_GT(sent, 0);
}

// Where the operator of one of them has allowed nothing, bytes go by way of the front, as they do
// for a server of an earlier release.
TEST_F(BetweenServers, WithoutLeaveBytesGoThroughTheFront) {
  Start(2, {}, {});
  const auto in = Numbers(1 << 16, 3);
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 4 << 16, devices_[0]);
  session->Alloc(2, 4 << 16, devices_[1]);
  session->Write(1, 0, Bytes(in));
  session->CopyTold(2, 0, 1, 0, 4 << 16, Future<Done>());
  std::vector<int32_t> out(in.size());
  ASSERT_TRUE(session->Read(2, 0, Writable(out)).Get().ok()) << session->status();
  EXPECT_TRUE(in == out);
  EXPECT_EQ(Sent(), (std::vector<int64_t>{0, 0}));
}

// The bulk sockets of both are reached through a proxy. What their operators allow is its address,
// as the documentation says.
class BehindBulkProxies : public BetweenServers {
 protected:
  // `allowed` is given the address of the other's proxy, `remote_bulk` the one of its own.
  using Flag = std::function<std::string(const std::string&)>;
  void StartBehind(const Flag& allowed, const Flag& remote_bulk) {
    for (int i = 0; i < 2; ++i)
      bulk_.push_back(std::make_unique<fakes::CuttingProxy>("127.0.0.1:1"));
    std::vector<std::string> front;
    for (size_t i = 0; i < 2; ++i) {
      const std::string peer = allowed(bulk_[1 - i]->address());
      far_.push_back(std::make_unique<RunningDaemon>(std::vector<std::string>{"--peer", peer}));
      bulk_[i]->ConnectTo(far_[i]->bulk_address());
      there_.push_back(*Connection::Connect(far_[i]->address()));
      const std::string name(1, static_cast<char>('a' + i));
      front.insert(front.end(), {"--remote", name + "=" + far_[i]->address(), "--remote-bulk",
                                 name + "=" + remote_bulk(bulk_[i]->address())});
      devices_.push_back(name + "/CPU:0");
    }
    front_ = std::make_unique<RunningDaemon>(front);
    connection_ = *Connection::Connect(front_->address());
  }
  // Copies 256 KiB from the one to the other.
  void ExpectCopied() {
    const auto in = Numbers(1 << 16, 9);
    const auto session = *connection_->OpenSession();
    session->Alloc(1, 4 << 16, devices_[0]);
    session->Alloc(2, 4 << 16, devices_[1]);
    session->Write(1, 0, Bytes(in));
    session->CopyTold(2, 0, 1, 0, 4 << 16, Future<Done>());
    std::vector<int32_t> out(in.size());
    ASSERT_TRUE(session->Read(2, 0, Writable(out)).Get().ok()) << session->status();
    EXPECT_TRUE(in == out);
  }

  std::vector<std::unique_ptr<fakes::CuttingProxy>> bulk_;
};

TEST_F(BehindBulkProxies, CopiesAreDirectWhereTheProxiesAreAllowed) {
  const auto same = [](const std::string& address) { return address; };
  StartBehind(same, same);
  ExpectCopied();
  EXPECT_EQ(Sent(), (std::vector<int64_t>{4 << 16, 0}));
  EXPECT_GT(bulk_[1]->bytes_up(), 4 << 16) << "the sender has connected to the proxy";
}

TEST_F(BehindBulkProxies, CopiesPassThroughTheFrontWhereTheyAreNot) {
  // What each server says of its own address is allowed, but that is not the front's address of it.
  StartBehind(
      [](const std::string&) { return "127.0.0.1:*"; },
      [](const std::string& address) { return "localhost" + address.substr(address.rfind(':')); });
  ExpectCopied();
  EXPECT_EQ(Sent(), (std::vector<int64_t>{0, 0}));
}

TEST_F(BehindBulkProxies, CopiesPassThroughTheFrontWithoutBulkSockets) {
  StartBehind([](const std::string&) { return "127.0.0.1:*"; },
              [](const std::string&) { return "none"; });
  ExpectCopied();
  EXPECT_EQ(Sent(), (std::vector<int64_t>{0, 0}));
}

// The front's connections break all the time: tickets are asked for again, operations resumed, and
// every byte has been sent once.
TEST_F(BetweenServers, CopiesAreResumedOverConnectionsThatBreak) {
  Start(2);
  const auto in = Numbers(1 << 18, 5);
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 1 << 20, devices_[0]);
  session->Alloc(2, 1 << 20, devices_[1]);
  session->Write(1, 0, Bytes(in));
  constexpr int kRounds = 12;
  for (int i = 0; i < kRounds; ++i) {
    session->CopyTold(2, 0, 1, 0, 1 << 20, Future<Done>());
    session->CopyTold(1, 0, 2, 0, 1 << 20, Future<Done>());
    const Future<Done> synced = session->Sync();
    proxies_[static_cast<size_t>(i) % 2]->Cut();
    ASSERT_TRUE(synced.Get().ok()) << synced.Get().status();
  }
  std::vector<int32_t> out(in.size());
  ASSERT_TRUE(session->Read(1, 0, Writable(out)).Get().ok()) << session->status();
  EXPECT_TRUE(in == out);
  EXPECT_EQ(Sent(), (std::vector<int64_t>(2, int64_t{kRounds} << 20)));
}

// A server that is killed in the middle: the error names it, and the other one goes on.
TEST_F(BetweenServers, ADeadServerIsNamedAndTheOtherGoesOn) {
  Start(2, {"--remote-grace", "300"});
  const auto session = *connection_->OpenSession();
  constexpr int64_t kBytes = 256 << 20;
  session->Alloc(1, kBytes, devices_[0]);
  session->Alloc(2, kBytes, devices_[1]);
  session->Alloc(3, 16, devices_[0]);
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  for (int i = 0; i < 8; ++i) session->CopyTold(2, 0, 1, 0, kBytes, Future<Done>());
  const Future<Done> synced = session->Sync();
  EXPECT_TRUE(Becomes([&] { return Sent()[0] > 0; }));
  there_[1].reset();
  far_[1]->process().Signal(SIGKILL);
  EXPECT_FALSE(synced.Get().ok());
  EXPECT_THAT(std::string(session->status().message()), HasSubstr("b is lost"));
  std::vector<int32_t> out(4);
  EXPECT_FALSE(session->Read(2, 0, Writable(out)).Get().ok());
  EXPECT_TRUE(session->Read(3, 0, Writable(out)).Get().ok()) << "the other server goes on";
  EXPECT_TRUE(session->Read(1, 0, Writable(out)).Get().ok()) << "what was sent is as it was";
}

// The same of the sending one: the copy fails as all does that was on the lost server.
TEST_F(BetweenServers, ADeadSenderIsNamedAsLost) {
  Start(2, {"--remote-grace", "300"});
  const auto session = *connection_->OpenSession();
  constexpr int64_t kBytes = 256 << 20;
  session->Alloc(1, kBytes, devices_[0]);
  session->Alloc(2, kBytes, devices_[1]);
  session->Alloc(3, 16, devices_[1]);
  ASSERT_TRUE(session->Sync().Get().ok()) << session->status();
  std::vector<Future<Done>> copies;
  for (int i = 0; i < 8; ++i) {
    copies.emplace_back();
    session->CopyTold(2, 0, 1, 0, kBytes, copies.back());
  }
  EXPECT_TRUE(Becomes([&] { return There(1, "telegrad_peer_received_bytes_total") > 0; }));
  there_[0].reset();
  far_[0]->process().Signal(SIGKILL);
  EXPECT_FALSE(copies.back().Get().ok());
  for (const Future<Done>& copied : copies) {
    const absl::Status failed = copied.Get().status();
    if (failed.ok()) continue;  // it had ended
    EXPECT_TRUE(IsDeviceLost(failed)) << failed;
    EXPECT_THAT(std::string(failed.message()), HasSubstr("a is lost"));
  }
  std::vector<int32_t> out(4);
  EXPECT_TRUE(session->Read(3, 0, Writable(out)).Get().ok()) << "the other server goes on";
}

}  // namespace
}  // namespace telegrad
