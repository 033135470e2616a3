// The session's pipeline on the real CPU device, with runs that can be held at a gate.
#include "server/session/session.h"

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "devices/cpu/cpu_device.h"
#include "devices/disk/disk_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fakes/copy_engine.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/server/copy_graph.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class StringPayload final : public Payload {
 public:
  explicit StringPayload(std::string bytes) : bytes_(std::move(bytes)) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void CopyTo(void* to) const override { std::memcpy(to, bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

// Collects answers; a test waits for the one with an id.
class Sink final : public AnswerSink {
 public:
  void OnAnswer(Answer answer) override {
    std::lock_guard lock(mutex_);
    order_.push_back(answer.id);
    answers_[answer.id] = std::move(answer);
    changed_.notify_all();
  }
  void OnProgress() override {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
  Answer Take(uint64_t id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answers_.contains(id); });
    Answer answer = std::move(answers_[id]);
    return answer;
  }
  template <typename Condition>
  void Await(Condition condition) {
    std::unique_lock lock(mutex_);
    while (!condition()) changed_.wait_for(lock, std::chrono::milliseconds(1));
  }
  std::vector<uint64_t> order() {
    std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> order_;
  std::map<uint64_t, Answer> answers_;
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    CpuOptions options;
    options.threads = 1;
    options.memory_limit = 256 << 20;
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu(options));
    device_ = devices[0].get();
    pool_ = *DevicePool::Create(std::move(devices));
    env_ = {pool_.get(), &engine_, &workers_, &compilers_, &metrics_, {}};
  }
  ~SessionTest() override {
    if (session_) session_->Close();
  }

  Session& session() {
    if (!session_) {
      tenant_ = std::make_shared<Tenant>("test", env_.limits, &metrics_);
      session_ = std::make_shared<Session>(env_, tenant_, 1, sink_);
    }
    return *session_;
  }
  template <typename Op>
  uint64_t Submit(Op op) {
    session().Submit({.id = ++last_id_, .op = std::move(op)});
    return last_id_;
  }
  uint64_t Alloc(uint64_t handle, uint64_t bytes) { return Submit(AllocOp{handle, bytes, ""}); }
  uint64_t Write(uint64_t handle, std::string bytes, uint64_t offset = 0) {
    return Submit(WriteOp{handle, offset, std::make_unique<StringPayload>(std::move(bytes))});
  }
  uint64_t Read(uint64_t handle, uint64_t bytes, uint64_t offset = 0) {
    return Submit(ReadOp{handle, offset, bytes});
  }
  // Copies `from` to `to`.
  uint64_t Run(uint64_t to, uint64_t from, bool quiet = false) {
    return Submit(RunOp{std::string(hash_.view()), {to, from}, quiet});
  }
  void Put(int64_t elements) {
    const FrozenGraph graph = CopyGraph(elements);
    hash_ = ContentHash(graph.root());
    const uint64_t id =
        Submit(PutOp{[graph, hash = hash_](Budget*) -> absl::StatusOr<VerifiedGraph> {
                       return VerifiedGraph{graph, hash};
                     },
                     100, false});
    ASSERT_TRUE(sink_->Take(id).status.ok());
  }
  std::string Bytes(uint64_t read) {
    const Answer answer = sink_->Take(read);
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    if (!answer.status.ok()) return "error";
    const auto& result = std::get<ReadResult>(answer.result);
    if (!result.held) return result.copy;
    return std::string(static_cast<const char*>(result.held->memory()->host()) + result.at,
                       result.bytes);
  }
  absl::Status StatusOf(uint64_t id) { return sink_->Take(id).status; }
  absl::Status Sync() { return StatusOf(Submit(SyncOp{})); }

  fakes::CopyEngine engine_;
  Metrics metrics_;
  Device* device_ = nullptr;
  std::unique_ptr<DevicePool> pool_;
  TaskPool workers_{1};
  TaskPool compilers_{1};
  Environment env_;
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
  std::shared_ptr<Tenant> tenant_;
  std::shared_ptr<Session> session_;
  Digest hash_;
  uint64_t last_id_ = 0;
};

TEST_F(SessionTest, WritesAndReads) {
  Alloc(1, 8);
  EXPECT_EQ(Bytes(Read(1, 8)), std::string(8, '\0'));
  Write(1, "abcdefgh");
  Write(1, "XY", 3);
  EXPECT_EQ(Bytes(Read(1, 8)), "abcXYfgh");
  EXPECT_EQ(Bytes(Read(1, 3, 2)), "cXY");
  EXPECT_EQ(Bytes(Read(1, 0, 8)), "");
}

TEST_F(SessionTest, LargeOperationsGoThroughWorkersInOrder) {
  const std::string bytes(8 << 20, 'q');
  Alloc(1, bytes.size());
  Write(1, bytes);
  Write(1, "z");
  EXPECT_EQ(Bytes(Read(1, bytes.size())), StrCat("z", bytes.substr(1)));
}

TEST_F(SessionTest, ErrorsNameWhatIsWrong) {
  Alloc(1, 8);
  const absl::Status reserved = StatusOf(Alloc(0, 8));
  EXPECT_TRUE(absl::IsInvalidArgument(reserved)) << reserved;
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(Alloc(1, 8))));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Write(9, "a"))));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Read(9, 1))));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Submit(FreeOp{{1, 9}}))));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Read(1, 1)))) << "freed although 9 was unknown";
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Submit(AllocOp{2, 8, "GPU:7"}))));
  Alloc(3, 8);
  EXPECT_THAT(std::string(StatusOf(Read(3, 9)).message()), HasSubstr("9 bytes at 0 exceed its 8"));
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(Read(3, 2, UINT64_MAX))));
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(Submit(RunOp{"short", {}, false}))));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Submit(RunOp{std::string(32, 'h'), {3}, false}))));
  EXPECT_EQ(Bytes(Read(3, 8)), std::string(8, '\0')) << "none of it hurt handle 3";
}

TEST_F(SessionTest, FailedAllocAnswersForItsHandle) {
  env_.limits.bytes = 100;
  const absl::Status error = StatusOf(Alloc(1, 101));
  EXPECT_TRUE(absl::IsResourceExhausted(error));
  EXPECT_THAT(std::string(error.message()), HasSubstr("exceed bytes, 100"));
  EXPECT_EQ(StatusOf(Write(1, "a")), error);
  EXPECT_EQ(StatusOf(Read(1, 1)), error);
  Submit(FreeOp{{1}});
  Alloc(1, 100);
  EXPECT_TRUE(Sync().ok());
}

TEST_F(SessionTest, RunIsSubmittedWithoutWaitingForIt) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Write(2, "wxyz");
  engine_.gate.Close();
  const uint64_t run = Run(1, 2);
  const uint64_t read = Read(1, 4);
  Alloc(3, 4);  // goes on
  sink_->Await([&] { return metrics_.count(Metric::kBuffers) == 3; });
  EXPECT_THAT(sink_->order(), ElementsAre(1)) << "only the put is answered";
  engine_.gate.Open();
  EXPECT_EQ(Bytes(read), "wxyz");
  EXPECT_EQ(std::get<RunResult>(sink_->Take(run).result).kernels, 1u);
  EXPECT_THAT(sink_->order(), ElementsAre(1, run, read));
}

TEST_F(SessionTest, WriteWaitsForTheRunThatReadsItsBuffer) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Write(2, "old!");
  engine_.gate.Close();
  Run(1, 2);
  Write(2, "new!");
  const uint64_t copy = Read(1, 4);
  const uint64_t source = Read(2, 4);
  engine_.gate.Open();
  EXPECT_EQ(Bytes(copy), "old!");
  EXPECT_EQ(Bytes(source), "new!");
}

TEST_F(SessionTest, ReadSeesTheRunBeforeItAndNotTheOneAfter) {
  Put(1);
  for (uint64_t handle : {1, 2, 3}) Alloc(handle, 4);
  Write(2, "one!");
  Write(3, "two!");
  engine_.gate.Close();
  Run(1, 2);
  const uint64_t first = Read(1, 4);
  Run(1, 3);
  const uint64_t second = Read(1, 4);
  sink_->Await([&] { return metrics_.count(Metric::kRuns) == 2; });  // both are on the device
  engine_.gate.Open();
  EXPECT_EQ(Bytes(first), "one!");
  EXPECT_EQ(Bytes(second), "two!");
}

TEST_F(SessionTest, BufferBeingSentIsNotOverwritten) {
  env_.limits.copied_read_bytes = 0;
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Write(1, "keep");
  Write(2, "over");
  Answer sending = sink_->Take(Read(1, 4));
  Write(1, "lost");
  Run(1, 2);
  const uint64_t after = Read(1, 4);
  const auto held = std::get<ReadResult>(sending.result).held;
  EXPECT_EQ(std::memcmp(held->memory()->host(), "keep", 4), 0);
  EXPECT_EQ(metrics_.count(Metric::kRuns), 0);
  sending = {};
  const_cast<std::shared_ptr<HeldRead>&>(held).reset();
  EXPECT_EQ(Bytes(after), "over");
}

// Counts how often its bytes are copied, and where to.
class CountedPayload final : public Payload {
 public:
  CountedPayload(int64_t size, std::vector<void*>* copies) : size_(size), copies_(copies) {}
  int64_t size() const override { return size_; }
  void CopyTo(void* to) const override {
    copies_->push_back(to);
    std::memset(to, 'u', size_);
  }

 private:
  const int64_t size_;
  std::vector<void*>* const copies_;
};

// An upload is copied once, from where the transport received it to where kernels read it, and no
// memory is taken for it in between; also if it had to wait for a run.
TEST_F(SessionTest, UploadsAreCopiedOnceIntoTheArena) {
  constexpr int64_t kBytes = 1 << 20;
  env_.limits.copied_read_bytes = 0;
  Put(kBytes / 4);
  Alloc(1, 4 * kBytes);
  Alloc(2, 4 * kBytes);
  ASSERT_TRUE(Sync().ok());
  const int64_t used = device_->memory_used(), footprint = device_->memory_footprint();
  std::vector<void*> copies;
  const auto upload = [&](uint64_t offset) {
    return Submit(WriteOp{1, offset, std::make_unique<CountedPayload>(kBytes, &copies)});
  };
  upload(0);
  upload(kBytes);
  engine_.gate.Close();
  Run(2, 1);
  upload(2 * kBytes);  // waits for the run
  sink_->Await([&] { return metrics_.count(Metric::kStagedBytes) == kBytes; });
  engine_.gate.Open();
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kStagedBytes), 0);
  EXPECT_EQ(device_->memory_used(), used);
  EXPECT_EQ(device_->memory_footprint(), footprint);
  const Answer whole = sink_->Take(Read(1, 4 * kBytes));
  const auto held = std::get<ReadResult>(whole.result).held;
  auto* const memory = static_cast<char*>(held->memory()->host());
  EXPECT_THAT(copies, ElementsAre(memory, memory + kBytes, memory + 2 * kBytes));
  EXPECT_EQ(memory[3 * kBytes - 1], 'u');
}

TEST_F(SessionTest, FailedRunPoisonsUntilRewritten) {
  Put(1);
  for (uint64_t handle : {1, 2, 3, 4}) Alloc(handle, 4);
  Write(2, "good");
  engine_.gate.Close();
  const uint64_t run = Run(1, 2);
  const uint64_t dependent = Run(3, 1);
  const uint64_t pending = Read(3, 4);
  const absl::Status error = absl::DataLossError("broken");
  engine_.gate.Open(error);
  EXPECT_EQ(StatusOf(run), error);
  EXPECT_EQ(StatusOf(dependent), error);
  EXPECT_EQ(StatusOf(pending), error);
  EXPECT_EQ(Bytes(Read(2, 4)), "good");
  engine_.gate = {};
  EXPECT_EQ(StatusOf(Run(4, 3)), error) << "also later, when nothing is in flight";
  EXPECT_EQ(StatusOf(Read(4, 4)), error);
  Write(1, "x");
  EXPECT_EQ(StatusOf(Read(1, 4)), error) << "one byte does not make it whole";
  Write(1, "ine", 1);
  EXPECT_EQ(Bytes(Read(1, 4)), "xine");
  Run(3, 2);  // replaces all of it
  EXPECT_EQ(Bytes(Read(3, 4)), "good");
}

TEST_F(SessionTest, RefusedRunPoisonsWhatItWouldHaveWritten) {
  Put(1);
  Alloc(1, 2);
  Alloc(2, 4);
  const absl::Status error = StatusOf(Run(1, 2));
  EXPECT_TRUE(absl::IsInvalidArgument(error)) << error;
  EXPECT_EQ(StatusOf(Read(1, 2)), error);
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Run(2, 77))));
  EXPECT_TRUE(absl::IsNotFound(StatusOf(Read(2, 4))));
}

TEST_F(SessionTest, CompilesOnceAndOnAWorker) {
  std::thread::id compiled_on;
  engine_.on_compile = [&](Budget*) {
    compiled_on = std::this_thread::get_id();
    return absl::OkStatus();
  };
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  EXPECT_FALSE(std::get<RunResult>(sink_->Take(Run(1, 2)).result).cached);
  EXPECT_TRUE(std::get<RunResult>(sink_->Take(Run(1, 2)).result).cached);
  EXPECT_EQ(engine_.compiled, 1);
  EXPECT_NE(compiled_on, std::this_thread::get_id());
}

TEST_F(SessionTest, QuietRunsAnswerOnlyErrors) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Run(1, 2, /*quiet=*/true);
  EXPECT_TRUE(Sync().ok());
  const uint64_t failing = Run(1, 99, /*quiet=*/true);
  EXPECT_TRUE(absl::IsNotFound(StatusOf(failing)));
  EXPECT_EQ(sink_->order().size(), 3u) << "the put, the sync and the error";
}

// A session holds one trace, so that a client that takes no answers cannot make it hold more.
TEST_F(SessionTest, OneTraceAtATime) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  const auto traced = [&](bool quiet) {
    return Submit(RunOp{std::string(hash_.view()), {1, 2}, quiet, /*trace=*/true});
  };
  const uint64_t first = traced(false), second = traced(false);
  {
    const Answer answer = sink_->Take(first);
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    const auto& run = std::get<RunResult>(answer.result).traced;
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(run->executable->num_launches(), 1);
    EXPECT_LE(run->submitted_ns, run->ended_ns);
    EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(second)));
    EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(traced(false))));
  }
  EXPECT_TRUE(StatusOf(traced(false)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(traced(true))));
  const Answer plain = sink_->Take(Run(1, 2));
  EXPECT_EQ(std::get<RunResult>(plain.result).traced, nullptr);
}

TEST_F(SessionTest, ManyRunsAreHeldBackAndAllRun) {
  env_.limits.runs_in_flight = 4;
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  Write(2, "done");
  engine_.gate.Close();
  for (int i = 0; i < 100; ++i) Run(1, 2, /*quiet=*/true);
  EXPECT_LE(metrics_.count(Metric::kRuns), 4);
  engine_.gate.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kRuns), 100);
}

TEST_F(SessionTest, StagedBytesAreBounded) {
  env_.limits.staged_bytes = 10;
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  engine_.gate.Close();
  Run(1, 2);
  EXPECT_FALSE(session().Congested());
  for (int i = 0; i < 3; ++i) Write(2, "1234");
  EXPECT_TRUE(session().Congested());
  EXPECT_EQ(metrics_.count(Metric::kStagedBytes), 12);
  engine_.gate.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_FALSE(session().Congested());
  EXPECT_EQ(metrics_.count(Metric::kStagedBytes), 0);
}

TEST_F(SessionTest, ARunThatIsPredictedToTakeTooMuchIsRefused) {
  env_.limits.run = {.bytes = 999, .ms = 50};
  Put(1);
  for (const uint64_t handle : {1, 2, 3, 4}) Alloc(handle, 4);
  Write(2, "1234");
  engine_.cost = {.input_bytes = 4, .output_bytes = 4, .temporary_bytes = 1000};
  const absl::Status memory = StatusOf(Run(1, 2));
  EXPECT_TRUE(absl::IsResourceExhausted(memory)) << memory;
  EXPECT_THAT(std::string(memory.message()), HasSubstr("needs 1008 bytes"));
  EXPECT_THAT(std::string(memory.message()), HasSubstr("limited to 999"));
  EXPECT_EQ(StatusOf(Read(1, 4)), memory) << "what it would have written";
  EXPECT_EQ(Bytes(Read(2, 4)), "1234") << "and nothing else";
  EXPECT_EQ(device_->queue().last().value, 0u) << "nothing was enqueued";

  engine_.cost = {.seconds = 0.0501};
  Put(2);
  const absl::Status time = StatusOf(Run(3, 2));
  EXPECT_TRUE(absl::IsResourceExhausted(time)) << time;
  EXPECT_THAT(std::string(time.message()), HasSubstr("predicted to take 51 ms"));
  EXPECT_THAT(std::string(time.message()), HasSubstr("limited to 50 ms"));

  engine_.cost = {.input_bytes = 4, .output_bytes = 4, .temporary_bytes = 991, .seconds = 0.05};
  Put(3);
  EXPECT_TRUE(StatusOf(Run(4, 2)).ok());
}

TEST_F(SessionTest, BuffersMayTakeWhatTemporariesHeld) {
  const uint64_t too_much = Alloc(1, uint64_t{257} << 20);
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(too_much)));
  EXPECT_EQ(engine_.released, 1) << "before the allocation was given up";
}

TEST_F(SessionTest, CloseCancelsRuns) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  engine_.gate.Close();
  Run(1, 2);
  sink_->Await([&] { return metrics_.count(Metric::kRuns) == 1; });
  const TimelinePoint run = device_->queue().last();
  session_->Close();
  engine_.gate.Open();
  EXPECT_TRUE(absl::IsCancelled(run.Wait())) << run.Wait();
}

TEST_F(SessionTest, CloseLeavesNothingBehind) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  engine_.gate.Close();
  Run(1, 2);
  Write(2, "never");
  session_->Close();
  engine_.gate.Open();
  device_->queue().last().Wait().IgnoreError();  // it was cancelled
  sink_->Await([&] { return metrics_.count(Metric::kBuffers) == 0; });
  session_.reset();
  for (const Metric metric :
       {Metric::kSessions, Metric::kBuffers, Metric::kBufferBytes, Metric::kStagedBytes}) {
    EXPECT_EQ(metrics_.count(metric), 0) << AllMetrics()[static_cast<int>(metric)].name;
  }
}

TEST_F(SessionTest, CloseCancelsACompilation) {
  std::atomic<bool> compiling = false;
  engine_.on_compile = [&](Budget* budget) {
    compiling = true;
    absl::Status status;
    while (status.ok()) {
      std::this_thread::yield();
      status = budget->CheckTime();
    }
    return status;
  };
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Run(1, 2);
  sink_->Await([&] { return compiling.load(); });
  session_->Close();
  sink_->Await([&] { return metrics_.count(Metric::kBuffers) == 0; });
}

TEST_F(SessionTest, OthersGoOnWhileOneCompiles) {
  fakes::Gate compiler;
  compiler.Close();
  engine_.on_compile = [&](Budget*) { return compiler.point().Wait(); };
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  const uint64_t run = Run(1, 2);
  const auto other_sink = std::make_shared<Sink>();
  const auto other = std::make_shared<Session>(env_, tenant_, 2, other_sink);
  other->Submit({.id = 1, .op = AllocOp{1, 16 << 20, ""}});  // takes a worker
  other->Submit({.id = 2, .op = ReadOp{1, 0, 1}});
  EXPECT_TRUE(other_sink->Take(2).status.ok());
  other->Close();
  compiler.Open();
  EXPECT_TRUE(StatusOf(run).ok());
}

TEST(GraphStoreTest, EvictsTheLeastRecentlyUsed) {
  Metrics metrics;
  SessionLimits limits;
  limits.graphs = 2;
  limits.graph_bytes = 100;
  GraphStore store(limits, &metrics);
  const auto put = [&](int64_t elements, int64_t bytes) {
    const FrozenGraph graph = CopyGraph(elements);
    const Digest hash = ContentHash(graph.root());
    EXPECT_TRUE(store.Put({graph, hash}, bytes).ok());
    return hash;
  };
  const Digest a = put(1, 40), b = put(2, 40);
  EXPECT_NE(store.Find(a), nullptr);
  const Digest c = put(3, 40);
  EXPECT_EQ(store.Find(b), nullptr) << "b was used least recently";
  EXPECT_NE(store.Find(a), nullptr);
  const Digest d = put(4, 90);
  EXPECT_EQ(store.Find(a), nullptr) << "d leaves room for no other";
  EXPECT_EQ(store.Find(c), nullptr);
  EXPECT_EQ(metrics.count(Metric::kGraphBytes), 90);
  EXPECT_TRUE(absl::IsResourceExhausted(store.Put({CopyGraph(5), d}, 101).status()));
}

TEST(GraphStoreTest, KnowsWhatARunWrites) {
  const auto effects = SlotEffects(CopyGraph(3));
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_TRUE(effects[0].written && effects[0].replaced);
  EXPECT_EQ(effects[0].bytes, 12);
  EXPECT_FALSE(effects[1].written || effects[1].replaced);

  Graph g;  // slot 0 is read and its first half written
  const int64_t dims[] = {4};
  const int64_t half[] = {0, 2};
  const UOp p = g.Param(0, DType::kFloat32, dims);
  const UOp view = g.Make(Op::kShrink, {p}, half);
  const UOp store = g.Make(Op::kStore, {view, g.Make(Op::kNeg, {view})});
  const auto partial = SlotEffects(Freeze(g.Make(Op::kSink, {store})));
  ASSERT_EQ(partial.size(), 1u);
  EXPECT_TRUE(partial[0].written);
  EXPECT_FALSE(partial[0].replaced);
}

// With a disk beside the CPU.
class FileSessionTest : public SessionTest {
 protected:
  FileSessionTest() {
    std::ofstream(directory_.path() / "digits") << "0123456789";
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(*OpenCpu({.threads = 1, .memory_limit = 64 << 20}));
    devices.push_back(*OpenDisk({.name = "d", .directory = directory_.path(), .growth = 1000}));
    device_ = devices[0].get();
    pool_ = *DevicePool::Create(std::move(devices));
    env_.devices = pool_.get();
  }
  ~FileSessionTest() override {
    if (session_) session_->Close();
  }
  uint64_t AllocFile(uint64_t handle, uint64_t bytes, OpenMode mode = OpenMode::kRead,
                     uint64_t offset = 0, const std::string& path = "digits") {
    return Submit(AllocOp{handle, bytes, "DISK:d", AllocOp::File{path, offset, mode}});
  }

  TemporaryDirectory directory_;
};

TEST_F(FileSessionTest, OperationsOnAFileKeepTheirOrder) {
  AllocFile(1, 10, OpenMode::kWrite);
  const uint64_t before = Read(1, 10);
  Write(1, "ab", 2);
  const uint64_t between = Read(1, 4);
  Write(1, "c", 0);
  const uint64_t after = Read(1, 3, 0);
  EXPECT_EQ(Bytes(before), "0123456789");
  EXPECT_EQ(Bytes(between), "01ab");
  EXPECT_EQ(Bytes(after), "c1a");
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kBytesWritten), 3);
  EXPECT_EQ(metrics_.count(Metric::kBytesRead), 17);
}

TEST_F(FileSessionTest, OneReadIsStagedAtATime) {
  AllocFile(1, 10);
  const int64_t used = device_->memory_used();
  Answer first = sink_->Take(Read(1, 10));
  const uint64_t second = Read(1, 5, 5);
  EXPECT_EQ(device_->memory_used(), used + 64) << "more than one piece of the arena";
  first = {};  // sent
  EXPECT_EQ(Bytes(second), "56789");
  EXPECT_EQ(device_->memory_used(), used);
}

TEST_F(FileSessionTest, FailuresOfTheFileAreOfTheOperation) {
  AllocFile(1, 10, OpenMode::kWrite);
  ASSERT_TRUE(Sync().ok());
  std::filesystem::resize_file(directory_.path() / "digits", 4);
  const absl::Status read = StatusOf(Read(1, 10));
  EXPECT_TRUE(absl::IsOutOfRange(read)) << read;
  EXPECT_EQ(Bytes(Read(1, 4)), "0123") << "what is there is read";
  AllocFile(2, 4);
  const absl::Status refused = StatusOf(Write(2, "x"));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_EQ(StatusOf(Read(2, 4)), refused) << "it is not what the client expects";
  EXPECT_EQ(Bytes(Read(1, 4)), "0123");
  AllocFile(3, 1, OpenMode::kRead, UINT64_MAX);
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(Read(3, 1))));
}

}  // namespace
}  // namespace telegrad
