// The session's pipeline: operations in order, runs without an answer, failures and the buffers
// that they poison.
#include <atomic>
#include <thread>

#include "tests/server/session_fixture.h"

namespace telegrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_THAT(std::string(error.message()),
              HasSubstr("its limit of 100; raise it with --session-bytes"));
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
  EXPECT_EQ(As<RunResult>(sink_->Take(run)).kernels, 1u);
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

// A stream passes on what waited for room as soon as it hears of progress, a cancellation, too.
TEST_F(SessionTest, ACancellationOutOfProgressLosesNoWait) {
  env_.limits.copied_read_bytes = 0;
  Put(1);
  for (uint64_t handle : {1, 2, 3}) Alloc(handle, 4);
  Write(1, "sent");
  Answer sent = sink_->Take(Read(1, 4));  // which holds up writes for as long as it is there
  engine_.gate.Close();
  Run(2, 3);
  Write(3, "used");  // waits for the run, and the others for it
  const uint64_t cancelled = Write(1, "lost"), last = Write(1, "kept");
  const auto once = std::make_shared<std::atomic<bool>>(false);
  sink_->on_progress = [=, this] {
    if (metrics_.count(Metric::kBytesWritten) < 8 || once->exchange(true)) return;
    session().Cancel(*sink_, last + 1, cancelled, cancelled);
  };
  engine_.gate.Open();
  EXPECT_TRUE(absl::IsCancelled(StatusOf(cancelled)));
  last_id_ = last + 1;
  sent = {};
  EXPECT_EQ(Bytes(Read(1, 4)), "kept");
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
  const auto held = As<ReadResult>(sending).held;
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
  const auto held = As<ReadResult>(whole).held;
  auto* const memory = static_cast<char*>(held->memory()->host());
  EXPECT_THAT(copies, ElementsAre(memory, memory + kBytes, memory + 2 * kBytes));
  EXPECT_EQ(memory[3 * kBytes - 1], 'u');
}

// Not only by the session's next run, which may never come.
TEST_F(SessionTest, FreedBuffersOfTheLastRunAreGivenBack) {
  const int64_t used = device_->memory_used();
  Put(16);
  Alloc(1, 64);
  Alloc(2, 64);
  Run(2, 1);
  Submit(FreeOp{{1, 2}});
  ASSERT_TRUE(Sync().ok());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (device_->memory_used() != used && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();  // what a run used goes a moment after it has ended
  }
  EXPECT_EQ(device_->memory_used(), used);

  Alloc(3, 64);
  Run(3, 99);  // refused
  Submit(FreeOp{{3}});
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(device_->memory_used(), used);
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
  EXPECT_FALSE(As<RunResult>(sink_->Take(Run(1, 2))).cached);
  EXPECT_TRUE(As<RunResult>(sink_->Take(Run(1, 2))).cached);
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

}  // namespace
}  // namespace telegrad
