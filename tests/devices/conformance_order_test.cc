// What runs when, and what fails with what; see conformance.h.
#include <thread>

#include "devices/api/shared_timeline.h"
#include "tests/devices/conformance.h"

namespace telegrad {
namespace {

TEST_P(Conformance, SubmitReturnsBeforeAnythingRuns) {
  OpenDevice();
  const BufferView buffer = Buffer(1);
  const Gate gate;
  const TimelinePoint point = Copied(buffer, HostBuffer(*host_, "x"), {gate.point()});
  EXPECT_EQ(point.timeline->value(), 0u);
  EXPECT_EQ(device_->queue(QueueKind::kCopy).last().value, point.value);
  gate.Open();
  EXPECT_EQ(point.Wait(), absl::OkStatus());
  ExpectBytes(buffer, "x");
}

TEST_P(Conformance, RunsInOrderBehindAClosedGate) {
  OpenDevice();
  const BufferView buffer = Buffer(1);
  const Gate gate;
  std::vector<BufferView> seen;
  TimelinePoint last;
  for (const char* digit : {"1", "2", "3"}) {
    last = Copied(buffer, HostBuffer(*host_, digit), {gate.point()});
    seen.push_back(HostBuffer(*host_, "?"));
    last = Copied(seen.back(), buffer);
  }
  gate.Open();
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_EQ(last.value, 6u);
  if (!GetParam().no_contents.empty()) return;
  EXPECT_EQ(Bytes(seen[0]) + Bytes(seen[1]) + Bytes(seen[2]), "123");
}

TEST_P(Conformance, FailuresReachWhatDependsOnThemAndNothingElse) {
  OpenDevice();
  const BufferView buffer = Buffer(1);
  const Gate gate;
  const absl::Status lost = absl::DataLossError("the upload broke off");
  const TimelinePoint failing = Copied(buffer, HostBuffer(*host_, "1"), {gate.point()});
  const TimelinePoint dependent = Copied(buffer, HostBuffer(*host_, "2"), {failing});
  const TimelinePoint further =
      Copied(buffer, HostBuffer(*host_, "3"), {TimelinePoint{}, dependent});
  const TimelinePoint independent = Copied(buffer, HostBuffer(*host_, "4"));
  gate.Open(lost);
  EXPECT_EQ(failing.Wait(), lost);
  EXPECT_EQ(dependent.Wait(), lost);
  EXPECT_EQ(further.Wait(), lost);
  EXPECT_EQ(independent.Wait(), absl::OkStatus());
  EXPECT_EQ(device_->Health(), absl::OkStatus());
  ExpectBytes(buffer, "4");
}

// A failure goes from one device to the next and back, on whichever queues its dependents are.
TEST_P(Conformance, FailuresCrossDevicesAndQueues) {
  OpenDevice();
  const BufferView buffer = Buffer(1), other = Buffer(1);
  const BufferView staged = HostBuffer(*host_, "s"), out = HostBuffer(*host_, "o");
  const Gate gate;
  const absl::Status lost = absl::DataLossError("the upload broke off");
  const TimelinePoint a = Copied(buffer, HostBuffer(*host_, "1"), {gate.point()});
  const TimelinePoint b = *Copy(*host_, out, staged, {a}, QueueKind::kCompute);
  const TimelinePoint c = *Copy(*host_, out, staged, {b}, QueueKind::kCopy);
  const TimelinePoint d = Copied(other, out, {c});
  const TimelinePoint bystander = *Copy(*host_, out, staged, {}, QueueKind::kCompute);
  gate.Open(lost);
  EXPECT_EQ(d.Wait(), lost);
  EXPECT_EQ(b.Wait(), lost);
  EXPECT_EQ(c.Wait(), lost);
  EXPECT_EQ(bystander.Wait(), absl::OkStatus());
  EXPECT_EQ(Copied(other, out, {bystander}).Wait(), absl::OkStatus());
  ExpectBytes(other, "s");
}

TEST_P(Conformance, PointsOrderItBehindOtherDevices) {
  OpenDevice();
  const BufferView buffer = Buffer(1);
  const BufferView here = HostBuffer(*host_, "h"), there = HostBuffer(*host_, "t");
  const Gate gate;
  const TimelinePoint a = *Copy(*host_, there, here, {gate.point()});
  const TimelinePoint b = Copied(buffer, there, {a});
  const TimelinePoint c = *Copy(*host_, there, HostBuffer(*host_, "x"), {b});
  gate.Open();
  EXPECT_EQ(c.Wait(), absl::OkStatus());
  ExpectBytes(buffer, "h");
  EXPECT_EQ(Bytes(there), "x");
}

TEST_P(Conformance, ALostPointFailsAndTheQueueGoesOn) {
  OpenDevice({.wait_limit = absl::Milliseconds(1)});
  const BufferView buffer = Buffer(1);
  const TimelinePoint lost = Copied(buffer, HostBuffer(*host_, "1"), {Gate().point()});
  const TimelinePoint next = Copied(buffer, HostBuffer(*host_, "2"));
  EXPECT_EQ(lost.Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(next.Wait(), absl::OkStatus());
  ExpectBytes(buffer, "2");
}

TEST_P(Conformance, FreesOnlyAfterTheRun) {
  OpenDevice();
  const int64_t before = device_->memory_used();
  const Gate gate;
  BufferView buffer = Buffer(1 << 20);
  const std::weak_ptr<Memory> watch = buffer.memory;
  const TimelinePoint point = Copied(buffer, HostBuffer(*host_, "1"), {gate.point()});
  buffer = {};
  EXPECT_FALSE(watch.expired());  // the queue alone holds it now
  EXPECT_GT(device_->memory_used(), before);
  gate.Open();
  EXPECT_EQ(point.Wait(), absl::OkStatus());
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(device_->memory_used(), before);
}

TEST_P(Conformance, ItsQueueIsBounded) {
  OpenDevice({.capacity = 4});
  const BufferView buffer = Buffer(1), from = HostBuffer(*host_, "1");
  const Gate gate;
  TimelinePoint last;
  for (int i = 0; i < 4; ++i) last = Copied(buffer, from, {gate.point()});
  const auto full = Copy(*device_, buffer, from);
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted) << full.status();
  gate.Open();
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_EQ(Copied(buffer, from).Wait(), absl::OkStatus());
}

TEST_P(Conformance, TwoThreadsSubmit) {
  OpenDevice({.capacity = 100});  // so that the ring wraps and fills
  constexpr int kEach = 2000;
  const BufferView buffer = Buffer(2);
  const auto work = [&](int64_t at, const std::string& text) {
    const BufferView from = HostBuffer(*host_, text);
    const auto commands = *device_->Encode({CopyCommand({{0, at}, {1, 0}, 1})});
    for (int i = 0; i < kEach;) {
      const auto point = device_->queue(QueueKind::kCopy).Submit(commands, {buffer, from}, {});
      if (point.ok()) {
        ++i;
      } else {
        ASSERT_EQ(point.status().code(), absl::StatusCode::kResourceExhausted);
        std::this_thread::yield();
      }
    }
  };
  std::thread a(work, 0, "a"), b(work, 1, "b");
  a.join();
  b.join();
  const TimelinePoint last = device_->queue(QueueKind::kCopy).last();
  EXPECT_EQ(last.value, 2u * kEach);
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  ExpectBytes(buffer, "ab");
}

TEST_P(Conformance, ClosingDrains) {
  OpenDevice();
  const BufferView buffer = Buffer(1), from = HostBuffer(*host_, "1");
  TimelinePoint ran;
  for (int i = 0; i < 5; ++i) ran = Copied(buffer, from);
  const Gate never;
  const TimelinePoint waiting = Copied(buffer, from, {never.point()});
  const TimelinePoint behind = Copied(buffer, from);
  device_.reset();
  EXPECT_EQ(ran.Wait(), absl::OkStatus());
  EXPECT_EQ(waiting.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(behind.Wait(), absl::OkStatus());
  never.Open();  // too late, and harmless
}

// Its points are seen through shared memory, and it waits for points that it sees there.
TEST_P(Conformance, SharesPointsWithOtherProcesses) {
  OpenDevice();
  const Gate gate;
  const BufferView buffer = Buffer(4), out = HostBuffer(*host_, "????");
  const TimelinePoint copied = Copied(buffer, HostBuffer(*host_, "here"), {gate.point()});
  const auto handle = copied.timeline->Export();
  ASSERT_TRUE(handle.ok()) << handle.status();
  const auto seen = ImportTimeline(*handle);
  ASSERT_TRUE(seen.ok()) << seen.status();
  Timeline elsewhere;
  const auto given = ImportTimeline(*elsewhere.Export());
  ASSERT_TRUE(given.ok()) << given.status();
  const TimelinePoint read = Copied(out, buffer, {copied, {*given, 1}});
  const TimelinePoint failed = Copied(buffer, HostBuffer(*host_, "gone"), {{*given, 2}});
  EXPECT_LT((*seen)->value(), copied.value);
  gate.Open();
  EXPECT_EQ((*seen)->Wait(copied.value), absl::OkStatus());
  elsewhere.Signal(1);
  EXPECT_EQ(read.Wait(), absl::OkStatus());
  EXPECT_EQ((*seen)->Wait(read.value), absl::OkStatus());
  if (GetParam().no_contents.empty()) EXPECT_EQ(Bytes(out), "here");
  elsewhere.Signal(2, absl::DataLossError("what it waits for has failed"));
  EXPECT_EQ((*seen)->Wait(failed.value), absl::DataLossError("what it waits for has failed"));
}

}  // namespace
}  // namespace telegrad
