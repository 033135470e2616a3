// A session that is served by one stream after another: which answers are repeated, and that no
// operation is carried out twice. Also cancellation and time limits.
#include <atomic>
#include <memory>
#include <optional>
#include <thread>

#include "tests/fakes/manual_clock.h"
#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMillisecond = 1'000'000;

class ResumeTest : public SessionTest {
 protected:
  ResumeTest() {
    terms_ = {.id = 1, .token = "t", .resumable = true, .lease_ns = 1, .grace_ns = 1};
  }

  // A new stream takes the session up: sink_ from now on. What it tells as the last operation.
  uint64_t Resume(uint64_t acknowledged) {
    const auto before = sink_;
    sink_ = std::make_shared<Sink>();
    const auto replaced = session().Attach(sink_, /*id=*/0, OpenResult{}, acknowledged);
    EXPECT_TRUE(replaced == nullptr || replaced == before);
    return As<OpenResult>(sink_->Take(0)).last_op_id;
  }
  uint64_t Repeat(uint64_t id, Operation operation) {
    operation.id = id;
    EXPECT_TRUE(session().Submit(*sink_, std::move(operation)).ok());
    return id;
  }
  void Cancel(uint64_t first, uint64_t last) { session().Cancel(*sink_, ++last_id_, first, last); }
};

TEST_F(ResumeTest, AnswersAreRepeatedUntilTheyAreAcknowledged) {
  Alloc(1, 4);
  Write(1, "wxyz");
  const uint64_t read = Read(1, 4), failed = Read(7, 4), sync = Submit(SyncOp{});
  EXPECT_EQ(Bytes(read), "wxyz");
  Write(1, "over");  // what is repeated is what was answered
  EXPECT_EQ(Resume(0), last_id_);
  EXPECT_THAT(sink_->order(), ElementsAre(0, read, failed, sync));
  EXPECT_EQ(Bytes(read), "wxyz");
  EXPECT_TRUE(absl::IsNotFound(StatusOf(failed)));
  EXPECT_EQ(Resume(failed), last_id_);
  EXPECT_THAT(sink_->order(), ElementsAre(0, sync));
  session().Acknowledge(sync);
  Resume(0);
  EXPECT_THAT(sink_->order(), ElementsAre(0u)) << "what was acknowledged is gone";
  EXPECT_TRUE(Sync().ok());
}

TEST_F(ResumeTest, OperationsAreCarriedOutOnce) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  const uint64_t run = Run(1, 2), last = last_id_;
  ASSERT_TRUE(StatusOf(run).ok());
  EXPECT_EQ(Resume(0), last);
  Repeat(run - 1, {.id = 0, .action = MakeAction(AllocOp{2, 4, ""})});
  Repeat(run, {.id = 0, .action = MakeAction(RunOp{std::string(hash_.view()), {1, 2}})});
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(metrics_.count(Metric::kRuns), 1);
  EXPECT_EQ(metrics_.count(Metric::kOperationErrors), 0);
  EXPECT_THAT(sink_->order(), ElementsAre(0, 1, run, last_id_));
}

TEST_F(ResumeTest, WorkGoesOnWithoutAStream) {
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  Write(2, "abcd");
  engine_.gate.Close();
  const uint64_t run = Run(1, 2), read = Read(1, 4);
  EXPECT_TRUE(session().Detach(*sink_));
  EXPECT_FALSE(session().Detach(*sink_));
  const uint64_t lost = Submit(SyncOp{});  // a stream that was detached has no say
  engine_.gate.Open();
  pool_->queue(*device_, QueueKind::kCompute)->Drained().Wait().IgnoreError();
  EXPECT_EQ(Resume(1), read);
  EXPECT_EQ(Bytes(read), "abcd");
  Repeat(lost, {.id = 0, .action = MakeAction(SyncOp{})});
  EXPECT_TRUE(StatusOf(lost).ok());
  EXPECT_THAT(sink_->order(), ElementsAre(0, run, read, lost));
}

TEST_F(ResumeTest, AHalfOpenStreamIsReplaced) {
  Alloc(1, 4);
  const auto old = sink_;
  Resume(0);
  EXPECT_TRUE(session().Submit(*old, {.id = 100, .action = MakeAction(SyncOp{})}).ok())
      << "ignored";
  EXPECT_FALSE(session().Detach(*old));
  EXPECT_EQ(Bytes(Read(1, 4)), std::string(4, '\0'));
  EXPECT_THAT(old->order(), ElementsAre());
}

TEST_F(ResumeTest, ReadsThatAreNotKeptAreAborted) {
  env_.limits.copied_read_bytes = 8;
  env_.limits.kept_bytes = 20;
  constexpr int64_t kLong = kMostKeptRead + 1;
  Alloc(1, kLong);
  Alloc(2, 8);
  const uint64_t held = Read(1, kLong), kept = Read(2, 8), also = Read(2, 8), over = Read(2, 8);
  for (const uint64_t read : {held, kept, also, over}) EXPECT_TRUE(StatusOf(read).ok());
  Resume(0);
  EXPECT_TRUE(absl::IsAborted(StatusOf(held)));
  EXPECT_EQ(Bytes(kept), std::string(8, '\0'));
  EXPECT_EQ(Bytes(also), std::string(8, '\0'));
  EXPECT_TRUE(absl::IsAborted(StatusOf(over)));
  session().Acknowledge(over);
  const uint64_t again = Read(2, 8);
  EXPECT_EQ(Bytes(again), std::string(8, '\0'));
  Resume(0);
  EXPECT_EQ(Bytes(again), std::string(8, '\0')) << "there is room again";
}

// What a front asks for on its session's connection: sent from the buffer, which the write changes
// once that has ended, and kept beside it.
TEST_F(ResumeTest, LongReadsOfAFrontAreKept) {
  constexpr int64_t kBytes = kMostKeptRead;
  ASSERT_GT(kBytes, env_.limits.copied_read_bytes);
  Alloc(1, kBytes + 4);
  Write(1, std::string(kBytes + 4, 'a'));
  const uint64_t read = Submit(ReadOp{.handle = 1, .offset = 4, .bytes = kBytes});
  EXPECT_TRUE(StatusOf(read).ok());
  Resume(0);
  Write(1, std::string(kBytes + 4, 'b'));
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(Bytes(read), std::string(kBytes, 'a'));
  const Account& account = *tenant_->accounts.shared(Quota::kHostMemory);
  EXPECT_GT(account.used(), kBytes) << "its tenant pays for it";
  session().Acknowledge(last_id_);
  EXPECT_LT(account.used(), kBytes);
}

// Bytes of which a copy has to be kept.
struct Counted {
  const Session* session;
  std::atomic<int>* copies;
  int64_t bytes;

  bool kept_whole() const { return false; }
  int64_t kept_bytes() const { return bytes; }
  std::optional<Counted> Kept() const {
    (void)session->Idle();  // takes its lock
    ++*copies;
    return *this;
  }
};

class GivesCounted final : public Action {
 public:
  explicit GivesCounted(const Counted& counted) : counted_(counted) {}
  Step Do(Turn& turn) override { return turn.Reply(MakeResult(counted_)); }

 private:
  const Counted counted_;
};

TEST_F(ResumeTest, WhatHasNoRoomIsNotCopied) {
  constexpr int64_t kAnswer = 512;
  for (const bool of_tenant : {false, true}) {
    SCOPED_TRACE(of_tenant);
    if (session_) session_->Close();
    session_ = nullptr;
    sink_ = std::make_shared<Sink>();
    env_.limits.kept_bytes = of_tenant ? 1 << 20 : 30;
    if (of_tenant) quotas_[Quota::kHostMemory] = kAnswer + 30;
    std::atomic<int> copies{0};
    const auto give = [&](int64_t bytes) {
      const Counted counted{&session(), &copies, bytes};
      const uint64_t id = ++last_id_;
      EXPECT_TRUE(session()
                      .Submit(*sink_, {.id = id, .action = std::make_unique<GivesCounted>(counted)})
                      .ok());
      EXPECT_TRUE(StatusOf(id).ok());
      return id;
    };
    const uint64_t kept = give(20);
    EXPECT_EQ(copies, 1);
    const uint64_t over = give(of_tenant ? 1000 : 11);
    EXPECT_EQ(copies, 1);
    Resume(0);
    EXPECT_TRUE(StatusOf(kept).ok());
    EXPECT_TRUE(absl::IsAborted(StatusOf(over)));
    session().Acknowledge(over);
    EXPECT_EQ(tenant_->accounts[Quota::kHostMemory].used(), 0);
    give(30);
    EXPECT_EQ(copies, 2);
  }
}

// What is kept of a short read is what was sent.
TEST_F(ResumeTest, ShortReadsAreNotCopiedAgain) {
  Alloc(1, 8);
  const uint64_t read = Read(1, 8);
  const auto sent = sink_->Take(read).result;
  Resume(0);
  EXPECT_EQ(sink_->Take(read).result, sent);
}

TEST_F(ResumeTest, KeptAnswersAreChargedToTheTenant) {
  constexpr int64_t kHandle = 448 + 2 * (sizeof(Timeline) + 32),
                    kAnswer = 512;                       // beside what has a length of its own
  quotas_[Quota::kHostMemory] = kHandle + kAnswer + 20;  // which answers may pass, their bytes not
  Alloc(1, 8);
  const uint64_t kept = Read(1, 8), also = Read(1, 8), over = Read(1, 8);
  for (const uint64_t read : {kept, also, over}) EXPECT_TRUE(StatusOf(read).ok());
  const Account& account = *tenant_->accounts.shared(Quota::kHostMemory);
  EXPECT_EQ(account.used(), kHandle + 3 * kAnswer + 16);
  Resume(kept);
  EXPECT_EQ(account.used(), kHandle + 2 * kAnswer + 8);
  EXPECT_EQ(Bytes(also), std::string(8, '\0'));
  EXPECT_TRUE(absl::IsAborted(StatusOf(over)));
  session().Acknowledge(over);
  EXPECT_EQ(account.used(), kHandle);
}

TEST_F(ResumeTest, AClientThatAcknowledgesNothingIsRefused) {
  env_.limits.unacknowledged = 3;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(Sync().ok());
  const absl::Status refused =
      session().Submit(*sink_, {.id = ++last_id_, .action = MakeAction(SyncOp{})});
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("unacknowledged is limited to 3"));
  session().Acknowledge(2);
  EXPECT_TRUE(Sync().ok());
}

TEST_F(ResumeTest, CancelledWorkDoesNotBegin) {
  Put(1);
  for (const uint64_t handle : {1, 2, 3, 4}) Alloc(handle, 4);
  Write(2, "abcd");
  engine_.gate.Close();
  const uint64_t first = Run(1, 2);
  const uint64_t write = Write(2, "efgh");  // waits for the run, and what follows with it
  const uint64_t run = Run(3, 4), alloc = Alloc(5, 4), put = Submit(PutOf(CopyGraph(2), true));
  const uint64_t free = Submit(FreeOp{{4}}), last = Submit(SyncOp{}), after = Read(4, 4);
  Cancel(write, last);
  engine_.gate.Open();
  EXPECT_TRUE(StatusOf(first).ok());
  for (const uint64_t id : {write, run, alloc, put, free, last}) {
    EXPECT_TRUE(absl::IsCancelled(StatusOf(id))) << id;
  }
  EXPECT_EQ(Bytes(after), std::string(4, '\0')) << "not freed";
  EXPECT_EQ(metrics_.count(Metric::kRuns), 1);
  EXPECT_EQ(engine_.compiled, 1);
  EXPECT_EQ(Bytes(Read(1, 4)), "abcd");
  for (const uint64_t handle : {2, 3, 5}) {
    EXPECT_TRUE(absl::IsCancelled(StatusOf(Read(handle, 4)))) << "spoiled: " << handle;
  }
  Write(2, "good");
  Write(3, "good");
  EXPECT_EQ(Bytes(Read(2, 4)), "good");
  EXPECT_EQ(Bytes(Read(3, 4)), "good");
}

TEST_F(ResumeTest, ARunUnderWayIsCancelledAndOthersAreNot) {
  Put(1);
  for (const uint64_t handle : {1, 2, 3}) Alloc(handle, 4);
  Write(2, "abcd");
  engine_.gate.Close();
  const uint64_t cancelled = Run(1, 2), other = Run(3, 2);
  sink_->Await([&] { return metrics_.count(Metric::kRuns) == 2; });
  Cancel(0, cancelled);
  engine_.gate.Open();
  EXPECT_TRUE(absl::IsCancelled(StatusOf(cancelled)));
  EXPECT_TRUE(StatusOf(other).ok());
  EXPECT_TRUE(absl::IsCancelled(StatusOf(Read(1, 4))));
  EXPECT_EQ(Bytes(Read(3, 4)), "abcd");
}

// A client that does not read what it asked for holds up its own writes, but can take them back.
TEST_F(ResumeTest, CancellingWhatWaitsLetsTheRestGoOn) {
  env_.limits.copied_read_bytes = 0;
  Alloc(1, 4);
  const Answer sending = sink_->Take(Read(1, 4));
  const uint64_t write = Write(1, "lost");
  const uint64_t sync = Submit(SyncOp{});
  EXPECT_FALSE(session().Idle());
  Cancel(write, write);
  EXPECT_TRUE(absl::IsCancelled(StatusOf(write)));
  EXPECT_TRUE(StatusOf(sync).ok());
  EXPECT_EQ(metrics_.count(Metric::kStagedBytes), 0);
}

TEST_F(ResumeTest, CancellingARunEndsItsCompilation) {
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
  const uint64_t run = Run(1, 2);
  sink_->Await([&] { return compiling.load(); });
  Cancel(run, run);
  EXPECT_TRUE(absl::IsCancelled(StatusOf(run)));
  EXPECT_EQ(metrics_.count(Metric::kRuns), 0);
}

TEST_F(ResumeTest, ARepeatedCancelIsNoSecondOne) {
  const uint64_t cancel = ++last_id_;
  session().Cancel(*sink_, cancel, 0, 0);
  Put(1);
  Alloc(1, 4);
  Alloc(2, 4);
  engine_.gate.Close();
  const uint64_t run = Run(1, 2);
  session().Cancel(*sink_, cancel, 0, UINT64_MAX);
  engine_.gate.Open();
  EXPECT_TRUE(StatusOf(run).ok());
}

TEST_F(ResumeTest, RunsEndWithTheirTimeout) {
  fakes::ManualClock clock;
  env_.clock = &clock;
  Put(1);
  for (const uint64_t handle : {1, 2, 3}) Alloc(handle, 4);
  Write(2, "abcd");
  const auto timed = [&](uint64_t to, int64_t timeout_ms) {
    RunOp run{std::string(hash_.view()), {to, 2}};
    run.timeout_ms = timeout_ms;
    return Submit(std::move(run));
  };
  ASSERT_TRUE(StatusOf(timed(1, 1)).ok());
  engine_.gate.Close();
  const uint64_t under_way = timed(1, 10), patient = timed(3, 11);
  sink_->Await([&] { return metrics_.count(Metric::kRuns) == 3; });
  Write(2, "efgh");  // waits for them
  const uint64_t queued = timed(1, 10);
  clock.Advance(10 * kMillisecond);
  engine_.gate.Open();
  EXPECT_TRUE(absl::IsDeadlineExceeded(StatusOf(under_way)));
  EXPECT_TRUE(StatusOf(patient).ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(StatusOf(queued)));
  EXPECT_EQ(metrics_.count(Metric::kRuns), 3) << "the queued one did not begin";
  EXPECT_TRUE(absl::IsDeadlineExceeded(StatusOf(Read(1, 4))));
  EXPECT_EQ(Bytes(Read(3, 4)), "abcd");
}

}  // namespace
}  // namespace telegrad
