// The limits of one session, so that others keep their share, and what is left when a session
// closes.
#include <atomic>
#include <future>
#include <thread>

#include "server/session/turn.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of a pool that has one thread, once what was posted there before is done.
std::thread::id ThreadOf(TaskPool& pool) {
  std::promise<std::thread::id> id;
  pool.Post([&] { id.set_value(std::this_thread::get_id()); });
  return id.get_future().get();
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
    const auto& run = As<RunResult>(answer).traced;
    ASSERT_NE(run, nullptr);
    EXPECT_EQ(run->executable->num_launches(), 1);
    EXPECT_LE(run->submitted_ns, run->ended_ns);
    EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(second)));
    EXPECT_TRUE(absl::IsResourceExhausted(StatusOf(traced(false))));
  }
  EXPECT_TRUE(StatusOf(traced(false)).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(StatusOf(traced(true))));
  const Answer plain = sink_->Take(Run(1, 2));
  EXPECT_EQ(As<RunResult>(plain).traced, nullptr);
}

// An operation that asks its session something as it goes, as the memory or the executable that one
// holds may by way of what their end sets off.
class AsksAtItsEnd final : public Action {
 public:
  AsksAtItsEnd(const Session* session, std::atomic<int>* ended)
      : session_(*session), ended_(*ended) {}
  ~AsksAtItsEnd() override {
    (void)session_.Idle();
    ++ended_;
  }
  Step Do(Turn& turn) override { return turn.Reply(); }

 private:
  const Session& session_;
  std::atomic<int>& ended_;
};

TEST_F(SessionTest, AnOperationGoesWithoutTheSessionsLock) {
  std::atomic<int> ended = 0;
  for (int i = 1; i <= 3; ++i) {
    auto action = std::make_unique<AsksAtItsEnd>(&session(), &ended);
    ASSERT_TRUE(session().Submit(*sink_, {.id = ++last_id_, .action = std::move(action)}).ok());
    EXPECT_TRUE(StatusOf(last_id_).ok());
    EXPECT_EQ(ended, i);
  }
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

// The end of somebody else's run may be told by a thread that holds what the next try takes.
TEST_F(SessionTest, ARunThatWaitsForOthersGoesOnInAThreadOfItsOwn) {
  std::vector<std::thread::id> tries;
  engine_.on_run = [&]() -> absl::Status {
    tries.push_back(std::this_thread::get_id());
    return tries.size() == 1 ? absl::ResourceExhaustedError("no memory") : absl::OkStatus();
  };
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  Write(2, "done");
  ASSERT_TRUE(Sync().ok());
  const std::shared_ptr<Memory> memory = *device_->Alloc(8);
  Command copy;
  copy.kind = Command::Kind::kCopy;
  copy.copy = {{0, 0}, {0, 4}, 4};
  fakes::Gate others;
  others.Close();
  FairQueue& queue = *pool_->queue(*device_, QueueKind::kCompute);
  const auto stranger = queue.NewLane(std::make_shared<Share>());
  queue.Submit(stranger, {.slices = *EncodeSlices(*device_, {{copy, 0}}),
                          .bindings = {{memory, 0, 8}},
                          .waits = {others.point()}});
  const uint64_t mine = Run(1, 2);
  sink_->Await([&] { return engine_.released_own == 1; });
  ThreadOf(compilers_);  // where it was tried, which is over then
  others.Open();
  EXPECT_TRUE(StatusOf(mine).ok());
  EXPECT_EQ(Bytes(Read(1, 4)), "done");
  EXPECT_THAT(tries, ElementsAre(ThreadOf(compilers_), ThreadOf(workers_)));
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

// A name of no letters is two bytes there and a string here.
TEST_F(SessionTest, WhatAnOperationTakesBesideItsDataIsBounded) {
  env_.limits.staged_bytes = 100'000;
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  engine_.gate.Close();
  Run(1, 2);
  Write(2, "1234");  // waits for the run, and what follows for it
  const auto run = [&](int64_t head_bytes) {
    Operation operation{.id = ++last_id_, .head_bytes = head_bytes, .action = MakeAction(SyncOp{})};
    EXPECT_TRUE(session().Submit(*sink_, std::move(operation)).ok());
  };
  for (int i = 0; i < 100; ++i) run(1000);
  EXPECT_FALSE(session().Congested()) << "small ones are not counted";
  run(4000);
  EXPECT_TRUE(session().Congested());
  engine_.gate.Open();
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kStagedBytes), 0);
}

TEST_F(SessionTest, AnErrorRepeatsNotAllThatAClientSent) {
  engine_.on_run = [] { return absl::InternalError(std::string(1 << 20, 'n')); };
  Put(1);
  for (uint64_t handle : {1, 2}) Alloc(handle, 4);
  const absl::Status error = StatusOf(Run(1, 2));
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  EXPECT_LT(error.message().size(), 5000u);
  EXPECT_EQ(StatusOf(Read(1, 4)), error) << "what it would have written has it, too";
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
  const TimelinePoint ended = pool_->queue(*device_, QueueKind::kCompute)->Drained();
  session_->Close();
  engine_.gate.Open();
  EXPECT_TRUE(ended.Wait().ok());
  EXPECT_EQ(device_->queue().last().value, 0u) << "it was dropped before the device had it";
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
  pool_->queue(*device_, QueueKind::kCompute)->Drained().Wait().IgnoreError();
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
  const auto other = std::make_shared<Session>(env_, tenant_, SessionTerms{.id = 2}, other_sink);
  ASSERT_TRUE(other->Submit(*other_sink, {.id = 1, .action = MakeAction(AllocOp{1, 16 << 20, ""})})
                  .ok());  // takes a worker
  ASSERT_TRUE(other->Submit(*other_sink, {.id = 2, .action = MakeAction(ReadOp{1, 0, 1})}).ok());
  EXPECT_TRUE(other_sink->Take(2).status.ok());
  other->Close();
  compiler.Open();
  EXPECT_TRUE(StatusOf(run).ok());
}

// Of what the daemon keeps for a tenant nothing is free: handles, failures, answers.
TEST_F(SessionTest, HandlesAndFailuresAreChargedToTheTenant) {
  quotas_[Quota::kHostMemory] = 100'000;
  env_.limits.bytes = 1000;
  int64_t made = 0;
  for (uint64_t handle = 1; handle <= 1000; ++handle) {
    Alloc(handle, handle % 2 == 0 ? 1 : 1'000'000);  // or a failure
  }
  ASSERT_TRUE(Sync().ok());
  const Account& account = tenant_->accounts[Quota::kHostMemory];
  made = metrics_.count(Metric::kBuffers);
  EXPECT_GT(made, 50);
  EXPECT_LT(made, 100'000 / 400);
  EXPECT_LE(account.used(), account.limit());
  EXPECT_GE(account.used(), made * 400);
  session().Close();
  session_.reset();
  EXPECT_EQ(account.used(), 0);
}

TEST_F(SessionTest, KeptErrorsAreChargedToTheTenant) {
  terms_ = {.id = 1, .token = "t", .resumable = true, .lease_ns = 1, .grace_ns = 1};
  quotas_[Quota::kHostMemory] = 50'000;
  env_.limits.run_handles = 1;
  for (int i = 0; i < 2000; ++i) Alloc(0, 1);  // an error of some bytes
  const Account& account = tenant_->accounts[Quota::kHostMemory];
  const int64_t kept = account.used();
  EXPECT_GE(kept, 2000 * 512) << "each at least";
  EXPECT_LT(kept, 2000 * 512 + 50'000) << "and no message beyond the quota";
  session().Acknowledge(last_id_);
  EXPECT_EQ(account.used(), 0);
}

}  // namespace
}  // namespace telegrad
