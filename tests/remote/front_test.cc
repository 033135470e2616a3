// Clients of a daemon whose devices are another daemon's: results are those of a local device,
// no command waits for an answer, and a broken connection is restored or reported.
#include <signal.h>

#include "engine/base/device_lost.h"
#include "engine/ir/content_hash.h"
#include "engine/reference/tensor_eval.h"
#include "engine/wire/graph_bytes.h"
#include "tests/conformance/sharded_step.h"
#include "tests/remote/two_daemons.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kRuns = 200;
const std::string kFar = "b/CPU:0";

// A session with one counter on the far device that has been run once, so that its graph is known.
class Counting {
 public:
  Counting(Connection& connection, const std::string& device)
      : session_(*connection.OpenSession()), graph_(IncrementGraph(4)) {
    session_->Alloc(1, 16, device);
    session_->Put(graph_.root());
    EXPECT_TRUE(Run().Get().ok()) << session_->status();
  }
  Future<RunInfo> Run(uint32_t timeout_ms = 0) {
    const uint64_t handles[] = {1};
    return session_->Run(ContentHash(graph_.root()), handles, {}, timeout_ms);
  }
  Future<Done> Read() { return session_->Read(1, 0, Writable(words_)); }
  const std::vector<int32_t>& words() const { return words_; }
  RemoteSession& session() { return *session_; }

 private:
  std::vector<int32_t> words_ = std::vector<int32_t>(4, -1);
  std::unique_ptr<RemoteSession> session_;
  FrozenGraph graph_;
};

TEST_F(TwoDaemons, TheFarDevicesAreListed) {
  const DeviceInfo near = Device("CPU:0"), far = Device(kFar);
  EXPECT_EQ(near.kind, "cpu");
  EXPECT_FALSE(near.remote);
  EXPECT_EQ(far.kind, "cpu");
  EXPECT_TRUE(far.remote);
  EXPECT_TRUE(far.healthy);
  EXPECT_EQ(far.memory_limit, 1 << 30);
  EXPECT_EQ(far.threads, near.threads);
  EXPECT_TRUE(Becomes([&] { return Device(kFar).round_trip_ns > 0; }));
}

TEST_F(TwoDaemons, AGraphRunsThere) {
  Counting counting(*connection_, kFar);
  const auto run = counting.Run();
  ASSERT_TRUE(run.Get().ok()) << run.Get().status();
  EXPECT_TRUE(run.Get()->cached);
  EXPECT_GT(run.Get()->device_ns, 0);
  ASSERT_TRUE(counting.Read().Get().ok());
  EXPECT_THAT(counting.words(), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(There("telegrad_runs_total"), 2);
  EXPECT_EQ(There("telegrad_graph_puts_total"), 1);
}

// A client that names a far device has graphs compiled there ahead of their first run, and nothing
// here.
TEST_F(TwoDaemons, WhatIsCompiledAheadIsCompiledThere) {
  ConnectOptions options;
  options.device = kFar;
  const auto session = *Connect(front_->address(), options)->OpenSession();
  const FrozenGraph graph = IncrementGraph(4);
  const auto put = session->Put(graph.root(), /*compile=*/true);
  ASSERT_TRUE(put.Get().ok()) << put.Get().status();
  EXPECT_EQ(There("telegrad_kernels_compiled_total"), 1);
  EXPECT_EQ(connection_->Stats()->at("telegrad_kernels_compiled_total"), 0);
  session->Alloc(1, 16);
  const uint64_t handles[] = {1};
  const auto run = session->Run(*put.Get(), handles);
  ASSERT_TRUE(run.Get().ok()) << run.Get().status();
  EXPECT_TRUE(run.Get()->cached);
  EXPECT_EQ(There("telegrad_kernels_compiled_total"), 1);
}

TEST_F(TwoDaemons, GraphsAreNotCompiledForDevicesThatAreNone) {
  ConnectOptions options;
  options.device = "b/CPU:7";
  const auto session = *Connect(front_->address(), options)->OpenSession();
  const absl::Status status =
      session->Put(IncrementGraph(4).root(), /*compile=*/true).Get().status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("b/CPU:7"));
}

TEST_F(TwoDaemons, GraphsAreNotCompiledForMoreDevicesThanTheyCanHave) {
  const auto session = *connection_->OpenSession();
  const std::vector<std::string> devices(257, "CPU:0");
  const auto put = session->PutTold(GraphBytes(IncrementGraph(4).root()), devices);
  EXPECT_TRUE(absl::IsInvalidArgument(put.Get().status())) << put.Get().status();
  EXPECT_THAT(std::string(put.Get().status().message()), HasSubstr("at most 256"));
}

// Nothing of what the far server answers comes through, and yet it has carried out all of a chain
// in which every run needs the one before it: nothing waits for an answer.
TEST_F(TwoDaemons, AChainOfRunsWaitsForNoAnswer) {
  Counting counting(*connection_, kFar);
  const double before = There("telegrad_runs_total");
  proxy_->HoldAnswers(true);
  std::vector<Future<RunInfo>> runs;
  for (int i = 0; i < kRuns; ++i) runs.push_back(counting.Run());
  EXPECT_TRUE(Becomes([&] { return There("telegrad_runs_total") == before + kRuns; }))
      << There("telegrad_runs_total") << " of " << before + kRuns;
  proxy_->HoldAnswers(false);
  for (const auto& run : runs) ASSERT_TRUE(run.Get().ok()) << run.Get().status();
  ASSERT_TRUE(counting.Read().Get().ok());
  EXPECT_EQ(counting.words()[0], kRuns + 1);
}

// The same with buffers that come and go and are written in between.
TEST_F(TwoDaemons, WritesAndFreesWaitForNoAnswerEither) {
  Counting counting(*connection_, kFar);
  RemoteSession& session = counting.session();
  const FrozenGraph graph = IncrementGraph(4);
  const double before = There("telegrad_runs_total");
  const double buffers = There("telegrad_buffers");
  const double written = There("telegrad_written_bytes_total");
  proxy_->HoldAnswers(true);
  const std::vector<int32_t> words = {10, 20, 30, 40};
  constexpr int kSteps = 60;
  for (uint64_t i = 0; i < kSteps; ++i) {
    const uint64_t handles[] = {100 + i};
    session.Alloc(handles[0], 16, kFar);
    session.WriteCopy(handles[0], 0, Bytes(words));
    session.RunQuiet(ContentHash(graph.root()), handles);
    session.WriteCopy(1, 0, Bytes(words));  // over what a run may still use
    const uint64_t one[] = {1};
    session.RunQuiet(ContentHash(graph.root()), one);
    if (i + 1 < kSteps) session.Free(handles[0]);
  }
  EXPECT_TRUE(Becomes([&] { return There("telegrad_runs_total") == before + 2 * kSteps; }))
      << There("telegrad_runs_total") << " of " << before + 2 * kSteps;
  EXPECT_EQ(There("telegrad_written_bytes_total"), written + 2 * kSteps * 16);
  proxy_->HoldAnswers(false);
  ASSERT_TRUE(counting.Read().Get().ok()) << session.status();
  EXPECT_THAT(counting.words(), ElementsAre(11, 21, 31, 41));
  std::vector<int32_t> last(4);
  ASSERT_TRUE(session.Read(100 + kSteps - 1, 0, Writable(last)).Get().ok());
  EXPECT_THAT(last, ElementsAre(11, 21, 31, 41));
  EXPECT_TRUE(Becomes([&] { return There("telegrad_buffers") == buffers + 1; }));
}

// Steps of a training whose losses are read: a read does not hold up what follows it.
TEST_F(TwoDaemons, ShortReadsWaitForNoAnswer) {
  Counting counting(*connection_, kFar);
  const double before = There("telegrad_runs_total");
  constexpr int kSteps = 40;
  std::vector<std::vector<int32_t>> words(kSteps, std::vector<int32_t>(4, -1));
  std::vector<Future<Done>> reads;
  proxy_->HoldAnswers(true);
  for (std::vector<int32_t>& step : words) {
    counting.Run();
    reads.push_back(counting.session().Read(1, 0, Writable(step)));
  }
  EXPECT_TRUE(Becomes([&] { return There("telegrad_runs_total") == before + kSteps; }))
      << There("telegrad_runs_total") << " of " << before + kSteps;
  proxy_->HoldAnswers(false);
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_TRUE(reads[i].Get().ok()) << reads[i].Get().status();
    EXPECT_EQ(words[i][0], i + 2);
  }
}

// A value of a variable is a part of the message that runs the graph: nothing is put or compiled
// here for it.
TEST_F(TwoDaemons, VariablesTravelWithTheRun) {
  Graph g;
  const UOp n = g.Make(Op::kVar, DType::kVoid, {}, {5, 0, 8, 2});
  const UOp x = g.Param(0, DType::kFloat32, Shape{8}, 0);
  const UOp part = g.Make(Op::kShrink, DType::kVoid, {x, n}, {0, -2});
  const UOp sum = g.Make(Op::kReduce, DType::kVoid, {part}, {0, 0});
  const UOp out = g.Param(1, DType::kFloat32, Shape{1}, 0);
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})}));
  const auto session = *connection_->OpenSession();
  const std::vector<float> ones(8, 1);
  std::vector<float> result(1);
  session->Alloc(1, 32, kFar);
  session->Alloc(2, 4, kFar);
  session->Write(1, 0, Bytes(ones));
  session->Put(graph.root());
  const uint64_t handles[] = {1, 2};
  for (const int64_t value : {2, 8, 4, 6, 2}) {
    const VarValue values[] = {{5, value}};
    const auto run = session->Run(ContentHash(graph.root()), handles, values);
    ASSERT_TRUE(run.Get().ok()) << run.Get().status();
    ASSERT_TRUE(session->Read(2, 0, Writable(result)).Get().ok());
    EXPECT_EQ(result[0], static_cast<float>(value));
  }
  EXPECT_EQ(There("telegrad_graph_puts_total"), 1);
  const VarValue wrong[] = {{5, 9}};
  const auto refused = session->Run(ContentHash(graph.root()), handles, wrong);
  EXPECT_EQ(refused.Get().status().code(), absl::StatusCode::kInvalidArgument)
      << refused.Get().status();
}

// What a run takes depends on the values of its variables: it is predicted as for a device of the
// front's own, and the far server is asked once for all values that have the same code.
TEST_F(TwoDaemons, WhatARunTakesIsPredictedForItsValues) {
  constexpr int64_t kMost = 1 << 16;
  Graph g;
  const UOp n = g.Make(Op::kVar, DType::kVoid, {}, {5, 0, kMost, 1});
  const UOp x = g.Param(0, DType::kFloat32, Shape{kMost}, 0);
  const UOp part = g.Make(Op::kShrink, DType::kVoid, {x, n}, {0, -2});
  const UOp sum = g.Make(Op::kReduce, DType::kVoid, {part}, {0, 0});
  const UOp out = g.Param(1, DType::kFloat32, Shape{1}, 0);
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {out, sum})}));
  const auto session = *connection_->OpenSession();
  session->Put(graph.root());
  const auto cost = [&](const std::string& device, int64_t value) {
    const VarValue values[] = {{5, value}};
    const auto told =
        session->HasTold(ContentHash(graph.root()), std::span(&device, 1), values).Get();
    EXPECT_TRUE(told.ok()) << told.status();
    EXPECT_TRUE(told.ok() && told->has && told->cost) << device;
    if (!told.ok() || !told->cost) return PutInfo();
    const FormCost<PutInfo>& form = *told->cost;
    EXPECT_EQ(form.bounds.size(), 1u);
    const auto [id, min, max, multiple] = form.bounds.at(0);
    EXPECT_TRUE(id == 5 && min <= value && value <= max && value % multiple == 0);
    const double part_of =
        max == min ? 0 : static_cast<double>(value - min) / static_cast<double>(max - min);
    const double share = max == min ? 1 : form.least_share + (1 - form.least_share) * part_of;
    PutInfo info = form.greatest;
    info.flops *= share;
    info.bytes *= share;
    info.seconds *= share;
    return info;
  };
  cost(kFar, 64);
  const double asked = There("telegrad_operations_total");
  double before = 0;
  for (const int64_t value : {int64_t{128}, int64_t{5000}, int64_t{5001}, kMost}) {
    const PutInfo here = cost("CPU:0", value), there = cost(kFar, value);
    EXPECT_GT(there.flops, before) << value;
    before = there.flops;
    EXPECT_DOUBLE_EQ(there.flops, here.flops) << value;
    EXPECT_DOUBLE_EQ(there.bytes, here.bytes) << value;
    EXPECT_EQ(there.temporary_bytes, here.temporary_bytes) << value;
    EXPECT_GT(there.seconds, 0) << value;
  }
  EXPECT_EQ(There("telegrad_operations_total"), asked);
  EXPECT_EQ(There("telegrad_graph_puts_total"), 1);
}

// The same words as from the far server itself.
TEST_F(TwoDaemons, ErrorsComeBackAsTheyAre) {
  const auto error = [](Connection& connection, const std::string& device) {
    Counting counting(connection, device);
    RemoteSession& session = counting.session();
    session.Alloc(2, 4, device);  // too short
    const uint64_t handles[] = {2};
    const auto run = session.Run(ContentHash(IncrementGraph(4).root()), handles);
    std::string text(run.Get().status().message());
    return text.substr(text.find("): "));
  };
  EXPECT_EQ(error(*connection_, kFar), error(*there_, "CPU:0"));
}

TEST_F(TwoDaemons, WhatFailedThereSpoilsWhatItWouldHaveWritten) {
  Start({}, {"--default-quota", "device_memory=1MiB"});
  Counting counting(*connection_, kFar);
  RemoteSession& session = counting.session();
  session.Alloc(2, 8 << 20, kFar);  // more than the far server gives this tenant
  std::vector<int32_t> out(4);
  const auto read = session.Read(2, 0, Writable(out));
  EXPECT_EQ(read.Get().status().code(), absl::StatusCode::kResourceExhausted)
      << read.Get().status();
  EXPECT_THAT(std::string(read.Get().status().message()), HasSubstr("device_memory"));
  EXPECT_TRUE(counting.Run().Get().ok());
}

TEST_F(TwoDaemons, AnUnknownFarDeviceIsNamed) {
  for (const std::string name : {"b/CPU:9", "c/CPU:0", "b/b/CPU:0", "b/"}) {
    const auto session = *connection_->OpenSession();
    session->Alloc(1, 16, name);
    const Future<Done> synced = session->Sync();
    EXPECT_EQ(synced.Get().status().code(), absl::StatusCode::kNotFound) << synced.Get().status();
    EXPECT_THAT(std::string(synced.Get().status().message()), HasSubstr(name));
  }
}

TEST_F(TwoDaemons, AFullDeviceSaysSo) {
  const auto session = *connection_->OpenSession();
  session->Alloc(1, int64_t{2} << 30, kFar);
  const Future<Done> synced = session->Sync();
  EXPECT_EQ(synced.Get().status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(synced.Get().status().message()), HasSubstr(kFar));
}

TEST_F(TwoDaemons, PartsOfAGraphAreOnBothSides) {
  Graph g;
  const auto copy = [&](UOp x, int64_t device) {
    return g.Make(Op::kCopy, DType::kVoid, {x}, {device});
  };
  const UOp here = g.Param(0, DType::kInt32, Shape{4}, 0);
  const UOp there = g.Param(1, DType::kInt32, Shape{4}, 1);
  const UOp sum = g.Make(Op::kAdd, {there, copy(here, 1)});
  const UOp back = g.Make(Op::kMul, {copy(sum, 0), here});
  const FrozenGraph graph = Freeze(
      g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(2, DType::kInt32, Shape{4}, 0), back})}));
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 16, "CPU:0");
  session->Alloc(2, 16, kFar);
  session->Alloc(3, 16, "CPU:0");
  const std::vector<int32_t> x = {1, 2, 3, 4}, y = {10, 20, 30, 40};
  session->Write(1, 0, Bytes(x));
  session->Write(2, 0, Bytes(y));
  session->Put(graph.root());
  const uint64_t handles[] = {1, 2, 3};
  const auto run = session->Run(ContentHash(graph.root()), handles);
  ASSERT_TRUE(run.Get().ok()) << run.Get().status();
  std::vector<int32_t> out(4);
  ASSERT_TRUE(session->Read(3, 0, Writable(out)).Get().ok());
  EXPECT_THAT(out, ElementsAre(11, 44, 99, 176));
}

// An attention of which half is on the far device, with caches that grow: its part is put there
// once, and a run takes the position with it. After the first one nothing is partitioned, scheduled
// or compiled, here or there.
TEST_F(TwoDaemons, ADecoderOnBothSidesIsCompiledOnce) {
  const testing::ShardedStep step{.positions = 8};
  std::mt19937_64 rng(1);
  std::vector<std::vector<uint8_t>> want = step.Contents(rng);
  const FrozenGraph graph = step.Graph();
  const auto session = *connection_->OpenSession();
  std::vector<uint64_t> handles;
  for (int64_t s = 0; s < step.slots(); ++s) {
    const std::vector<uint8_t>& bytes = want[static_cast<size_t>(s)];
    handles.push_back(static_cast<uint64_t>(s) + 1);
    session->Alloc(handles.back(), static_cast<int64_t>(bytes.size()),
                   step.device_of(s) == 0 ? "CPU:0" : kFar);
    session->Write(handles.back(), 0, Bytes(bytes));
  }
  session->Put(graph.root());
  const auto made = [&] {
    std::vector<double> out;
    for (const auto& connection : {connection_, there_}) {
      const std::map<std::string, double> stats = *connection->Stats();
      for (const char* name : {"telegrad_partitions_total", "telegrad_executables_compiled_total",
                               "telegrad_kernels_compiled_total", "telegrad_graph_puts_total"}) {
        out.push_back(stats.at(name));
      }
    }
    return out;
  };
  std::vector<double> first;
  for (int64_t at = 0; at < step.positions; ++at) {
    const VarValue values[] = {{testing::ShardedStep::kPosition, at}};
    const auto run = session->Run(ContentHash(graph.root()), handles, values);
    ASSERT_TRUE(run.Get().ok()) << run.Get().status();
    Budget budget;
    ASSERT_EQ(reference::Evaluate(graph.root(), want, &budget, {{values[0].id, at}}),
              absl::OkStatus());
    for (int64_t s = 0; s < step.slots(); ++s) {
      const auto& bytes = want[static_cast<size_t>(s)];
      std::vector<float> expected(bytes.size() / sizeof(float)), got(expected.size());
      std::memcpy(expected.data(), bytes.data(), bytes.size());
      ASSERT_TRUE(session->Read(handles[static_cast<size_t>(s)], 0, Writable(got)).Get().ok());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], expected[i], 1e-5) << "position " << at << ", slot " << s << ", " << i;
      }
    }
    if (at == 0) first = made();
    ASSERT_EQ(made(), first) << at;
  }
  EXPECT_EQ(first[0], 1) << "partitions";
  EXPECT_EQ(There("telegrad_graph_puts_total"), 1) << "its part";
  EXPECT_EQ(connection_->Stats()->at("telegrad_partitions_for_values_total"), 0);
  // The input there, the sum back: rows of the caches stay where they are.
  EXPECT_EQ(connection_->Stats()->at("telegrad_transfer_bytes_total"),
            static_cast<double>(step.positions * 2 * 4 * step.width));
  const VarValue wrong[] = {{testing::ShardedStep::kPosition, step.positions}};
  const auto refused = session->Run(ContentHash(graph.root()), handles, wrong);
  EXPECT_EQ(refused.Get().status().code(), absl::StatusCode::kInvalidArgument)
      << refused.Get().status();
  EXPECT_THAT(std::string(refused.Get().status().message()),
              HasSubstr("variable 0 is 8, expected a multiple of 1 in [0, 7]"));
}

// Numbers that mean one far device are one there, too, whether or not it has as many devices.
TEST_F(TwoDaemons, AGraphOfSeveralNumbersRunsOnOneFarDevice) {
  Graph g;
  const auto copy = [&](UOp x, int64_t device) {
    return g.Make(Op::kCopy, DType::kVoid, {x}, {device});
  };
  const UOp x = g.Param(0, DType::kInt32, Shape{4}, 0);
  const UOp there = copy(x, 5);  // which has no slot
  const UOp store = g.Make(Op::kStore, {x, copy(g.Make(Op::kMul, {there, there}), 0)});
  const FrozenGraph graph = Freeze(g.Make(Op::kSink, {store}));
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 16, kFar);
  const std::vector<int32_t> in = {1, 2, 3, 4};
  session->Write(1, 0, Bytes(in));
  session->Put(graph.root());
  const uint64_t handles[] = {1};
  const std::vector<std::string> devices(6, kFar);
  struct Sink final : RunSink {
    Future<RunInfo> run;
    void OnRun(uint64_t which, const absl::StatusOr<RunInfo>& info) override {
      run.Set(which == 7 ? info : absl::InternalError("another run's"));
    }
  };
  const auto sink = std::make_shared<Sink>();
  const uint64_t offsets[] = {0};
  session->RunTold(ContentHash(graph.root()),
                   {.handles = handles, .offsets = offsets, .devices = devices}, sink, 7);
  ASSERT_TRUE(sink->run.Get().ok()) << sink->run.Get().status();
  std::vector<int32_t> out(4);
  ASSERT_TRUE(session->Read(1, 0, Writable(out)).Get().ok());
  EXPECT_THAT(out, ElementsAre(1, 4, 9, 16));
}

// Neither of two servers reaches the other's memory: what one hands the other passes through here.
TEST_F(TwoDaemons, PartsOfAGraphAreOnTwoServers) {
  const RunningDaemon third;
  Start({"--remote", "c=" + third.address()}, {});
  Graph g;
  const auto copy = [&](UOp x, int64_t device) {
    return g.Make(Op::kCopy, DType::kVoid, {x}, {device});
  };
  const UOp x = g.Param(0, DType::kInt32, Shape{4}, 0), y = g.Param(1, DType::kInt32, Shape{4}, 1);
  const UOp first = g.Make(Op::kAdd, {x, copy(y, 0)}), second = g.Make(Op::kMul, {y, copy(x, 1)});
  const FrozenGraph graph =
      Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {x, first}), g.Make(Op::kStore, {y, second})}));
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 16, kFar);
  session->Alloc(2, 16, "c/CPU:0");
  const std::vector<int32_t> in = {1, 2, 3, 4}, other = {10, 20, 30, 40};
  session->Write(1, 0, Bytes(in));
  session->Write(2, 0, Bytes(other));
  session->Put(graph.root());
  const uint64_t handles[] = {1, 2};
  std::vector<Future<RunInfo>> runs;
  for (int i = 0; i < 2; ++i) runs.push_back(session->Run(ContentHash(graph.root()), handles));
  std::vector<int32_t> a(4), b(4);
  const auto read = session->Read(1, 0, Writable(a));
  ASSERT_TRUE(session->Read(2, 0, Writable(b)).Get().ok()) << session->status();
  ASSERT_TRUE(read.Get().ok()) << read.Get().status();
  EXPECT_THAT(a, ElementsAre(21, 62, 123, 204));      // x + y + x * y
  EXPECT_THAT(b, ElementsAre(110, 880, 2970, 7040));  // x * y * (x + y)
}

// Connections break all the time: what was sent is resumed, and no run is one too many or too few.
TEST_F(TwoDaemons, NothingRunsTwiceOverConnectionsThatBreak) {
  Counting counting(*connection_, kFar);
  int runs = 1;
  for (int round = 0; round < 8; ++round) {
    std::vector<Future<RunInfo>> pending;
    for (int i = 0; i < 25; ++i) pending.push_back(counting.Run());
    proxy_->Cut();
    for (const auto& run : pending) {
      ASSERT_TRUE(run.Get().ok()) << run.Get().status();
      ++runs;
    }
  }
  ASSERT_TRUE(counting.Read().Get().ok()) << counting.session().status();
  EXPECT_EQ(counting.words()[0], runs);
  EXPECT_EQ(There("telegrad_runs_total"), runs);
}

TEST_F(TwoDaemons, ADeadServerIsSaidAndComesBack) {
  Start({"--remote-grace", "1"}, {});
  auto counting = std::make_unique<Counting>(*connection_, kFar);
  KillFar();
  EXPECT_TRUE(Becomes([&] { return !Device(kFar).healthy; }));
  EXPECT_THAT(Device(kFar).health, HasSubstr("b is lost"));
  const auto run = counting->Run();
  EXPECT_EQ(run.Get().status().code(), absl::StatusCode::kUnavailable) << run.Get().status();
  EXPECT_THAT(std::string(run.Get().status().message()), HasSubstr("b is lost"));
  EXPECT_TRUE(IsDeviceLost(run.Get().status())) << run.Get().status();
  // What it would have written, too; other devices go on.
  EXPECT_EQ(counting->Read().Get().status().code(), absl::StatusCode::kUnavailable);
  Counting near(*connection_, "CPU:0");
  EXPECT_TRUE(near.Run().Get().ok());
  const auto fresh = *connection_->OpenSession();
  fresh->Alloc(1, 16, kFar);
  EXPECT_EQ(fresh->Sync().Get().status().code(), absl::StatusCode::kUnavailable);

  StartFarAnew();
  EXPECT_TRUE(Becomes([&] { return Device(kFar).healthy; }));
  // Its buffers are gone, and say so; new ones work.
  EXPECT_EQ(counting->Run().Get().status().code(), absl::StatusCode::kUnavailable);
  Counting again(*connection_, kFar);
  ASSERT_TRUE(again.Read().Get().ok());
  EXPECT_THAT(again.words(), ElementsAre(1, 1, 1, 1));
  EXPECT_TRUE(IsDeviceLost(counting->Run().Get().status()));
  std::vector<int32_t> none(4);
  const absl::Status another = again.session().Read(99, 0, Writable(none)).Get().status();
  EXPECT_FALSE(another.ok());
  EXPECT_FALSE(IsDeviceLost(another)) << another;
}

// Started anew between two runs, before anybody has missed it.
TEST_F(TwoDaemons, AServerStartedAnewHasForgottenTheBuffers) {
  Counting counting(*connection_, kFar);
  StartFarAnew();
  const auto run = counting.Run();
  EXPECT_EQ(run.Get().status().code(), absl::StatusCode::kUnavailable) << run.Get().status();
  Counting again(*connection_, kFar);
  EXPECT_TRUE(again.Run().Get().ok());
}

// It answers nothing and takes nothing more, and yet is there.
TEST_F(TwoDaemons, AServerThatStopsIsLostInTime) {
  Start({"--remote-grace", "1", "--remote-wait", "2000"}, {});
  Counting counting(*connection_, kFar);
  far_->process().Stop();
  std::vector<Future<RunInfo>> runs;
  for (int i = 0; i < 50; ++i) runs.push_back(counting.Run());
  for (const auto& run : runs) {
    EXPECT_EQ(run.Get().status().code(), absl::StatusCode::kUnavailable) << run.Get().status();
  }
  EXPECT_FALSE(Device(kFar).healthy);
  far_->process().Signal(SIGCONT);
  EXPECT_TRUE(Becomes([&] { return Device(kFar).healthy; }));
  Counting again(*connection_, kFar);
  EXPECT_TRUE(again.Run().Get().ok());
}

// Each of the runs is of another graph, which the far server has to compile first, so that the
// cancellation overtakes most of them there, too.
TEST_F(TwoDaemons, ACancelledRunEndsThere) {
  constexpr int kGraphs = 100;
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 4 * kGraphs, kFar);
  const uint64_t handles[] = {1};
  std::vector<Future<RunInfo>> runs;
  for (int64_t elements = 1; elements <= kGraphs; ++elements) {
    const FrozenGraph graph = IncrementGraph(elements);
    session->Put(graph.root());
    runs.push_back(session->Run(ContentHash(graph.root()), handles));
  }
  session->Cancel();
  int done = 0;
  for (const auto& run : runs) {
    const absl::Status status = run.Get().status();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
    done += status.ok() ? 1 : 0;
  }
  EXPECT_TRUE(absl::IsCancelled(runs.back().Get().status()));
  EXPECT_LT(done, kGraphs / 2);
  Counting again(*connection_, kFar);
  EXPECT_TRUE(again.Run().Get().ok());
  // What came to nothing here did not run there.
  EXPECT_LE(There("telegrad_runs_total"), done + 3);
}

// The far server has to compile it first, which takes longer than a millisecond.
TEST_F(TwoDaemons, ARunThereEndsWithItsTimeout) {
  const auto session = *connection_->OpenSession();
  const FrozenGraph graph = IncrementGraph(64);
  const Digest hash = ContentHash(graph.root());
  session->Alloc(1, 256, kFar);
  session->Put(graph.root());
  const uint64_t handles[] = {1};
  const auto late = session->Run(hash, handles, {}, /*timeout_ms=*/1);
  std::vector<int32_t> words(64);
  const auto spoiled = session->Read(1, 0, Writable(words));
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.Get().status())) << late.Get().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(spoiled.Get().status())) << spoiled.Get().status();
  Counting again(*connection_, kFar);
  EXPECT_TRUE(again.Run(/*timeout_ms=*/600'000).Get().ok());
}

// A run whose result comes to the front's memory: it ends by its deadline, before or while that
// comes, though nothing comes from the server any more. What comes late goes nowhere.
TEST_F(TwoDaemons, ADownloadEndsWithTheTimeoutOfItsRun) {
  Start({"--remote-grace", "600000"}, {});
  constexpr int64_t kWords = 16 << 20;
  Graph g;
  const UOp there = g.Param(0, DType::kInt32, Shape{kWords}, 1);
  const UOp back = g.Make(Op::kCopy, DType::kVoid, {there}, {0});
  const FrozenGraph graph = Freeze(
      g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(1, DType::kInt32, Shape{kWords}, 0), back})}));
  const Digest hash = ContentHash(graph.root());
  const auto session = *connection_->OpenSession();
  session->Alloc(1, kWords * 4, kFar);
  session->Alloc(2, kWords * 4, "CPU:0");
  const std::vector<int32_t> far(kWords, 7), own(kWords, 1);
  session->Write(1, 0, Bytes(far));
  session->Put(graph.root());
  const uint64_t handles[] = {1, 2};
  ASSERT_TRUE(session->Run(hash, handles).Get().ok());
  std::vector<int32_t> out(kWords);
  for (const int64_t come : {0, 1 << 20}) {
    const int64_t before = proxy_->bytes_down();
    proxy_->HoldAnswers(come == 0);
    const auto late = session->Run(hash, handles, {}, /*timeout_ms=*/2000);
    EXPECT_TRUE(Becomes([&] { return proxy_->bytes_down() >= before + come; }));
    proxy_->HoldAnswers(true);
    const absl::Status ended = late.Get().status();
    if (come == 0 || !ended.ok()) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(ended)) << come << ": " << ended;
    }
    session->Write(2, 0, Bytes(own));
    EXPECT_TRUE(session->Sync().Get().ok() || !ended.ok());
    proxy_->HoldAnswers(false);
    session->Read(1, 0, Writable(out)).Get();  // behind it there
    ASSERT_TRUE(session->Read(2, 0, Writable(out)).Get().ok());
    EXPECT_TRUE(out == own) << come;
    const auto again = session->Run(hash, handles);
    ASSERT_TRUE(again.Get().ok()) << again.Get().status();
    ASSERT_TRUE(session->Read(2, 0, Writable(out)).Get().ok());
    EXPECT_TRUE(out == far) << come;
  }
}

// A server that takes connections and says nothing: who allocates there waits for it, and nobody
// else does.
TEST_F(TwoDaemons, ASilentServerHoldsUpNoOtherSession) {
  Start({"--remote-wait", "3600000"}, {});
  proxy_->HoldAnswers(true);
  std::vector<std::unique_ptr<RemoteSession>> waiting;
  std::vector<Future<Done>> allocated;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(*connection_->OpenSession());
    waiting.back()->Alloc(1, 4, kFar);
    allocated.push_back(waiting.back()->Sync());
  }
  const auto session = *connection_->OpenSession();
  session->Alloc(1, 4, "CPU:0");
  const std::vector<int32_t> in = {7};
  std::vector<int32_t> out(1);
  session->Write(1, 0, Bytes(in));
  const auto read = session->Read(1, 0, Writable(out));
  EXPECT_TRUE(Becomes([&] { return read.has_result(); }));
  EXPECT_FALSE(allocated[0].has_result());
  proxy_->HoldAnswers(false);
  for (const auto& one : allocated) EXPECT_TRUE(one.Get().ok()) << one.Get().status();
  EXPECT_EQ(out, in);
}

// What was cancelled there leaves memory that passes values between parts of the graph poisoned;
// the next run does not find it. The upload of the first stops for want of credit.
TEST_F(TwoDaemons, ARunThatWasCancelledThereDoesNotSpoilTheNext) {
  constexpr int64_t kWords = 6 << 20;
  Graph g;
  const auto copy = [&](UOp x, int64_t device) {
    return g.Make(Op::kCopy, DType::kVoid, {x}, {device});
  };
  // What goes there and what comes back are two values, of which neither is all of that memory.
  const UOp here = g.Param(0, DType::kInt32, Shape{kWords}, 0);
  const UOp there = copy(here, 1);
  const UOp back = copy(g.Make(Op::kAdd, {there, there}), 0);
  const FrozenGraph graph = Freeze(
      g.Make(Op::kSink, {g.Make(Op::kStore, {g.Param(1, DType::kInt32, Shape{kWords}, 0), back})}));
  const Digest hash = ContentHash(graph.root());
  const auto session = *connection_->OpenSession();
  session->Alloc(1, kWords * 4, "CPU:0");
  session->Alloc(2, kWords * 4, "CPU:0");
  const std::vector<int32_t> in(kWords, 3);
  std::vector<int32_t> out(kWords);
  session->Write(1, 0, Bytes(in));
  session->Put(graph.root());
  const uint64_t handles[] = {1, 2};
  ASSERT_TRUE(session->Run(hash, handles).Get().ok());
  const int64_t before = proxy_->bytes_up();
  proxy_->HoldAnswers(true);
  const auto late = session->Run(hash, handles);
  EXPECT_TRUE(Becomes([&] { return proxy_->bytes_up() > before + (1 << 20); }));
  session->Cancel();
  EXPECT_TRUE(absl::IsCancelled(late.Get().status())) << late.Get().status();
  proxy_->HoldAnswers(false);
  const auto next = session->Run(hash, handles);
  ASSERT_TRUE(next.Get().ok()) << next.Get().status();
  ASSERT_TRUE(session->Read(2, 0, Writable(out)).Get().ok());
  EXPECT_TRUE(out == std::vector<int32_t>(kWords, 6));
}

// Of two that name each other neither gets an answer: each says so and ends.
TEST(Fronts, ThatWaitForEachOtherSaySo) {
  const std::string a = StrCat("unix:", ::testing::TempDir(), "front_a_", getpid());
  const std::string b = StrCat("unix:", ::testing::TempDir(), "front_b_", getpid());
  const auto flags = [](const std::string& own, const std::string& other) {
    return std::vector<std::string>{"--listen",      own,   "--remote",       "x=" + other,
                                    "--remote-wait", "500", "--cuda-devices", "0",
                                    "--log-level",   "off"};
  };
  testing::Process first(TELEGRADD, flags(a, b)), second(TELEGRADD, flags(b, a));
  for (testing::Process* process : {&first, &second}) {
    const testing::Output output = process->Wait();
    EXPECT_EQ(output.exit_code, 1);
    EXPECT_THAT(output.text, HasSubstr("remote x: no Telegrad server answers"));
  }
}

// Of a front only its own devices are offered, so no chain of fronts comes back to where it began.
TEST_F(TwoDaemons, TheDevicesOfAFrontsRemotesAreLeftOut) {
  RunningDaemon second({"--remote", "a=" + front_->address()});
  const auto connection = Connect(second.address());
  std::vector<std::string> names, notes;
  const auto devices = connection->ListDevices(&notes);
  ASSERT_TRUE(devices.ok());
  for (const DeviceInfo& device : *devices) names.push_back(device.name);
  EXPECT_THAT(names, ElementsAre("CPU:0", "a/CPU:0"));
  EXPECT_THAT(notes, ::testing::Contains(HasSubstr("a/b/CPU:0: that server reaches it elsewhere")));
}

}  // namespace
}  // namespace telegrad
