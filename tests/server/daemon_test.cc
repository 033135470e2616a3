// The real daemon, end to end, as the client library sees it: graphs run, bytes are written and
// read, and an error affects one operation only.
#include <map>
#include <random>

#include "client/cc/remote_plan.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/ir/content_hash.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Pair;

TEST_F(DaemonTest, RunsAGraphOverTcpAndUnixSocket) {
  for (const std::string& address : {address_, "unix:" + socket_}) {
    const auto connection = Connect(address);
    const auto session = *connection->OpenSession();
    std::vector<float> x(1000), y(1000);
    for (int i = 0; i < 1000; ++i) x[i] = static_cast<float>(i);
    const uint64_t in = session->NewHandle(), out = session->NewHandle();
    session->Alloc(in, 4000);
    session->Alloc(out, 4000);
    session->WriteCopy(in, 0, Bytes(x));
    const FrozenGraph graph = DoubleGraph(1000);
    const auto put = session->Put(graph.root());
    const uint64_t handles[] = {out, in};
    const auto run = session->Run(ContentHash(graph.root()), handles);
    const auto read = session->Read(out, 0, Writable(y));
    ASSERT_TRUE(put.Get().ok()) << put.Get().status();
    EXPECT_EQ(*put.Get(), ContentHash(graph.root()));
    ASSERT_TRUE(run.Get().ok()) << run.Get().status();
    EXPECT_GE(run.Get()->kernels, 1);
    // The kernels that it compiled, or found compiled.
    const auto compiling = session->Compiling();
    ASSERT_TRUE(compiling.ok()) << compiling.status();
    EXPECT_EQ(compiling->total, address == address_ ? run.Get()->kernels : 0);
    EXPECT_EQ(compiling->done, compiling->total);
    ASSERT_TRUE(read.Get().ok()) << read.Get().status();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(y[i], 2.0f * i);
    EXPECT_TRUE(*session->Has(ContentHash(graph.root())).Get());
    const double compiled = Stat("telegrad_kernels_compiled_total");
    EXPECT_TRUE(session->Run(ContentHash(graph.root()), handles).Get()->cached);
    EXPECT_EQ(Stat("telegrad_kernels_compiled_total"), compiled);
    EXPECT_GE(Stat("telegrad_accesses_proved_total"), 2);
    EXPECT_TRUE(session->status().ok()) << session->status();
  }
}

// The sum of the first n elements, n chosen by each run.
TEST_F(DaemonTest, PlanBringsItsInputsAlong) {
  Builder b;
  b.Output(b.From(HostTensor::Of<int32_t>({3}, {10, 20, 30}), "x") * 2, "out");
  const Plan plan = *b.Finish();
  const auto session = Session();
  RemoteState state(session.get());
  const auto remote = RemotePlan::Create(session.get(), &state, plan);
  ASSERT_TRUE(remote.ok()) << remote.status();
  for (int run = 0; run < 2; ++run) {
    (*remote)->Run();
    EXPECT_THAT((*remote)->Read("out")->Values<int32_t>(), ElementsAre(20, 40, 60));
  }
  ASSERT_TRUE((*remote)->Set("x", HostTensor::Of<int32_t>({3}, {1, 2, 3})).ok());
  (*remote)->Run();
  EXPECT_THAT((*remote)->Read("out")->Values<int32_t>(), ElementsAre(2, 4, 6));
}

TEST_F(DaemonTest, RunsAGraphWithVariables) {
  Graph g;
  const int64_t dims[] = {8}, one[] = {1};
  const UOp n = g.Make(Op::kVar, DType::kVoid, {}, {5, 0, 8, 2});
  const UOp x = g.Param(0, DType::kFloat32, dims);
  const UOp part = g.Make(Op::kShrink, DType::kVoid, {x, n}, {0, -2});
  const UOp sum = g.Make(Op::kReduce, DType::kVoid, {part}, {0, 0});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(1, DType::kFloat32, one), sum})});
  ASSERT_TRUE(g.status().ok()) << g.status();

  const auto session = Session();
  const Digest hash = *session->Put(sink, /*compile=*/true).Get();
  session->Alloc(1, 32);
  session->Alloc(2, 4);
  session->WriteCopy(1, 0, Bytes(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  const uint64_t handles[] = {1, 2};
  const auto run = [&](std::vector<VarValue> variables) {
    return session->Run(hash, handles, variables).Get();
  };
  for (const auto& [size, want] : {std::pair(0, 0.0f), {2, 3.0f}, {8, 36.0f}, {2, 3.0f}}) {
    const auto info = run({{5, size}});
    ASSERT_TRUE(info.ok()) << info.status();
    std::vector<float> out(1);
    EXPECT_TRUE(session->Read(2, 0, Writable(out)).Get().ok());
    EXPECT_EQ(out[0], want) << size;
  }
  EXPECT_TRUE(run({{5, 8}})->cached);
  const std::pair<std::vector<VarValue>, std::string> kWrong[] = {
      {{}, "variable 5 has no value, expected one in [0, 8]"},
      {{{5, 3}}, "variable 5 is 3, expected a multiple of 2 in [0, 8]"},
      {{{5, -2}}, "variable 5 is -2, expected a multiple of 2 in [0, 8]"},
      {{{5, 10}}, "variable 5 is 10, expected a multiple of 2 in [0, 8]"},
      {{{5, 2}, {6, 0}}, "variable 6 is none of the graph's"},
  };
  for (const auto& [variables, message] : kWrong) {
    const absl::Status status = run(variables).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST_F(DaemonTest, ManyBytesThereAndBack) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto session = Session();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4097}, size_t{65536}, size_t{65537},
                            size_t{1 << 20}, size_t{(3 << 20) + 5}, size_t{40 << 20}}) {
    std::vector<uint8_t> data(size), back(size);
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<uint8_t>(random());
    const uint64_t handle = session->NewHandle();
    session->Alloc(handle, static_cast<int64_t>(size));
    session->Write(handle, 0, Bytes(data));
    EXPECT_TRUE(session->Read(handle, 0, Writable(back)).Get().ok());
    EXPECT_EQ(data, back);
    // A part in the middle, changed while a read of the whole may still be under way.
    if (size > 10) {
      auto whole = session->Read(handle, 0, Writable(back));
      const std::vector<uint8_t> patch = {1, 2, 3};
      session->Write(handle, static_cast<int64_t>(size / 2), Bytes(patch));
      std::vector<uint8_t> part(5);
      EXPECT_TRUE(
          session->Read(handle, static_cast<int64_t>(size / 2 - 1), Writable(part)).Get().ok());
      EXPECT_EQ(data, back);
      EXPECT_EQ(part[1], 1);
      EXPECT_EQ(part[3], 3);
      EXPECT_TRUE(whole.Get().ok());
    }
    session->Free(handle);
  }
  EXPECT_TRUE(session->Sync().Get().ok()) << session->status();
  EXPECT_EQ(Stat("telegrad_buffer_bytes"), 0);
}

TEST_F(DaemonTest, RunsAGraphOnSeveralDevices) {
  testing::Process other(TELEGRADD, {"--listen", "127.0.0.1:0", "--cuda-devices", "0",
                                     "--cpu-memory", "1073741824", "--log-level", "off"});
  const std::string address = other.Line("listening on ");
  other.ReadOn();
  Start({"--cpu-devices", "2", "--remote", "b=" + address, "--cuda-devices", "0"});
  std::vector<std::string> names;
  const auto devices = connection_->ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  for (const DeviceInfo& device : *devices) names.push_back(device.name);
  EXPECT_THAT(names, ElementsAre("CPU:0", "CPU:1", "b/CPU:0"));
  EXPECT_THAT((*devices)[0].rates, ElementsAre(Pair("f64", Gt(0)), Pair("f32", Gt(0))));
  EXPECT_THAT((*devices)[2].rates, ElementsAre(Pair("f64", Gt(0)), Pair("f32", Gt(0))))
      << "as its own server declares";
  // Half of the work is on number 1, half on number 2, which the server's list says.
  Graph g;
  const auto copy = [&](UOp x, int64_t device) {
    return g.Make(Op::kCopy, DType::kVoid, {x}, {device});
  };
  const UOp in = g.Param(0, DType::kFloat32, Shape{100});
  const UOp there = g.Make(Op::kNeg, {copy(in, 1)});
  const UOp beyond = g.Make(Op::kMul, {copy(there, 2), copy(there, 2)});
  const UOp store = g.Make(Op::kStore, {g.Param(1, DType::kFloat32, Shape{100}), copy(beyond, 0)});
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {store}));
  const auto session = Session();
  std::vector<float> x(100), y(100);
  for (int i = 0; i < 100; ++i) x[i] = static_cast<float>(i);
  session->Alloc(1, 400);
  session->Alloc(2, 400);
  session->WriteCopy(1, 0, Bytes(x));
  session->Put(graph.root());
  const uint64_t handles[] = {1, 2};
  const auto run = session->Run(ContentHash(graph.root()), handles);
  const auto read = session->Read(2, 0, Writable(y));
  ASSERT_TRUE(run.Get().ok()) << run.Get().status();
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  for (int i = 0; i < 100; ++i) ASSERT_EQ(y[i], x[i] * x[i]);
  EXPECT_EQ(Stat("telegrad_transfer_bytes_total"), 3 * 400);
}

TEST_F(DaemonTest, AConnectionSaysWhereItsBuffersAre) {
  Start({"--cpu-devices", "2", "--cuda-devices", "0"});
  const auto used = [&] {
    std::map<std::string, int64_t> of;
    const auto devices = *connection_->ListDevices();
    for (const DeviceInfo& device : devices) of[device.name] = device.memory_used;
    return of;
  };
  ConnectOptions options;
  options.device = "CPU:1";
  const auto connection = Connection::Connect(address_, options);
  ASSERT_TRUE(connection.ok()) << connection.status();
  const auto session = *(*connection)->OpenSession();
  session->Alloc(1, 1 << 20);
  ASSERT_TRUE(session->Sync().Get().ok());
  EXPECT_EQ(used()["CPU:0"], 0);
  EXPECT_GE(used()["CPU:1"], 1 << 20);
  session->Alloc(2, 1 << 20, "CPU:0");
  ASSERT_TRUE(session->Sync().Get().ok());
  EXPECT_GE(used()["CPU:0"], 1 << 20);

  options.device = "CUDA:7";
  const auto elsewhere = *(*Connection::Connect(address_, options))->OpenSession();
  elsewhere->Alloc(1, 4);
  const absl::Status status = elsewhere->Sync().Get().status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("CPU:0, CPU:1"));
}

TEST_F(DaemonTest, ErrorsAreOfTheOperationAndTheSessionGoesOn) {
  const auto session = Session();
  session->Alloc(1, 16);
  session->WriteCopy(7, 0, Bytes(std::vector<int>{1}));
  const absl::Status sync = session->Sync().Get().status();
  EXPECT_TRUE(absl::IsNotFound(sync)) << sync;
  EXPECT_THAT(std::string(sync.message()), HasSubstr("(write): unknown handle 7"));
  EXPECT_EQ(session->TakeStatus(), sync);
  EXPECT_TRUE(session->Sync().Get().ok());

  const uint64_t handles[] = {1, 1};
  EXPECT_TRUE(absl::IsNotFound(session->Run(Digest{}, handles).Get().status()));
  EXPECT_FALSE(*session->Has(Digest{}).Get());
  const auto put = session->PutSerialized("not a graph");
  EXPECT_TRUE(absl::IsInvalidArgument(put.Get().status())) << put.Get().status();
  std::string many;  // more nodes than any graph may have, two bytes each
  for (int i = 0; i < 1'100'000; ++i) many += std::string("\x12\x00", 2);
  EXPECT_TRUE(absl::IsResourceExhausted(session->PutSerialized(many).Get().status()));

  const FrozenGraph graph = DoubleGraph(1000);
  const Digest hash = *session->Put(graph.root()).Get();
  session->Alloc(2, 4000);
  const uint64_t short_handles[] = {1, 2};
  const absl::Status too_short = session->Run(hash, short_handles).Get().status();
  EXPECT_TRUE(absl::IsInvalidArgument(too_short)) << too_short;
  EXPECT_EQ(session->TakeStatus().code(), absl::StatusCode::kNotFound) << "the first of them";
  session->Alloc(3, 1, "GPU:9");
  EXPECT_TRUE(absl::IsNotFound(session->Sync().Get().status()));
  EXPECT_THAT(std::string(session->TakeStatus().message()), HasSubstr("this server has CPU:0"));
  session->Alloc(4, int64_t{1} << 39);
  EXPECT_TRUE(absl::IsResourceExhausted(session->Sync().Get().status()));
  session->Alloc(5, 4000);
  const uint64_t good[] = {5, 2};
  EXPECT_TRUE(session->Run(hash, good).Get().ok());
}

// A client that sends much and reads nothing is held up; the daemon does not collect its answers.
TEST_F(DaemonTest, OtherSessionsGoOnBesideAGreedyOne) {
  std::vector<std::vector<uint8_t>> into(8, std::vector<uint8_t>(64 << 20));
  const auto greedy = Session();
  greedy->Alloc(1, 64 << 20);
  std::vector<Future<Done>> reads;
  for (auto& buffer : into) reads.push_back(greedy->Read(1, 0, Writable(buffer)));
  const auto session = Session();
  std::vector<int> x = {1, 2, 3}, y(3);
  session->Alloc(1, 12);
  session->WriteCopy(1, 0, Bytes(x));
  EXPECT_TRUE(session->Read(1, 0, Writable(y)).Get().ok());
  EXPECT_EQ(x, y);
  for (const auto& read : reads) EXPECT_TRUE(read.Get().ok());
}

}  // namespace
}  // namespace telegrad
