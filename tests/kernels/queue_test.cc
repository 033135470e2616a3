// The queues of the CPU device: order, gates, failures, bounds.
#include <thread>

#include "tests/kernels/device_kernels.h"

namespace telegrad {
namespace {

TEST(Queue, SubmitReturnsBeforeTheKernelRuns) {
  const auto device = Open();
  const auto word = Word(*device);
  const auto commands = Appending(*device, 7);
  Gate gate;
  const TimelinePoint waits[] = {gate.point()};
  const auto point = device->queue().Submit(commands, {Whole(word)}, waits);
  ASSERT_TRUE(point.ok());
  EXPECT_EQ(Value(word), 0);
  EXPECT_EQ(point->timeline->value(), 0u);
  EXPECT_EQ(device->queue().last().value, point->value);
  gate.Open();
  EXPECT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 7);
}

TEST(Queue, RunsInOrderBehindAClosedGate) {
  const auto device = Open();
  const auto word = Word(*device);
  Gate gate;
  const TimelinePoint waits[] = {gate.point()};
  std::vector<TimelinePoint> points;
  for (int digit = 1; digit <= 9; ++digit) {
    auto point = device->queue().Submit(
        Appending(*device, digit), {Whole(word)},
        digit == 1 ? std::span<const TimelinePoint>(waits) : std::span<const TimelinePoint>());
    ASSERT_TRUE(point.ok());
    points.push_back(*point);
  }
  EXPECT_EQ(Value(word), 0);
  gate.Open();
  EXPECT_EQ(points.back().Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 123456789);
}

TEST(Queue, FailuresReachWhatDependsOnThemAndNothingElse) {
  const auto device = Open();
  const auto word = Word(*device);
  Gate gate;
  const absl::Status lost = absl::DataLossError("the upload broke off");
  const auto submit = [&](int digit, std::vector<TimelinePoint> waits) {
    return *device->queue().Submit(Appending(*device, digit), {Whole(word)}, waits);
  };
  const TimelinePoint failing = submit(1, {gate.point()});
  const TimelinePoint dependent = submit(2, {failing});
  const TimelinePoint further = submit(3, {TimelinePoint{}, dependent});
  const TimelinePoint independent = submit(4, {});
  gate.Open(lost);
  EXPECT_EQ(failing.Wait(), lost);
  EXPECT_EQ(dependent.Wait(), lost);
  EXPECT_EQ(further.Wait(), lost);
  EXPECT_EQ(independent.Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 4);
  EXPECT_EQ(device->Health(), absl::OkStatus());
}

TEST(Queue, PointsOfOtherQueues) {
  const auto first = Open(), second = Open();
  const auto word = Word(*first);
  Gate gate;
  const TimelinePoint waits[] = {gate.point()};
  const auto a = first->queue().Submit(Appending(*first, 1), {Whole(word)}, waits);
  const TimelinePoint after_a[] = {*a};
  const auto b = second->queue().Submit(Appending(*second, 2), {Whole(word)}, after_a);
  const TimelinePoint after_b[] = {*b};
  const auto c = first->queue().Submit(Appending(*first, 3), {Whole(word)}, after_b);
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(Value(word), 0);
  gate.Open();
  EXPECT_EQ(c->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 123);
}

TEST(Queue, ALostPointFailsAndTheQueueGoesOn) {
  CpuOptions options;
  options.wait_limit = absl::Milliseconds(1);
  const auto device = Open(options);
  const auto word = Word(*device);
  const TimelinePoint waits[] = {Gate().point()};  // whose timeline nobody else has
  const auto lost = device->queue().Submit(Appending(*device, 1), {Whole(word)}, waits);
  const auto next = device->queue().Submit(Appending(*device, 2), {Whole(word)}, {});
  EXPECT_EQ(lost->Wait().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(next->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 2);
}

TEST(Queue, FreesOnlyAfterTheRun) {
  const auto device = Open();
  Gate gate;
  const int64_t before = device->memory_used();
  auto memory = *device->Alloc(1 << 20);
  auto commands = Appending(*device, 1);
  const TimelinePoint waits[] = {gate.point()};
  const std::weak_ptr<Memory> watch = memory;
  const auto point = device->queue().Submit(std::move(commands), {Whole(std::move(memory))}, waits);
  // Nobody but the queue holds buffer, commands and program now.
  EXPECT_FALSE(watch.expired());
  EXPECT_GT(device->memory_used(), before);
  gate.Open();
  EXPECT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_TRUE(watch.expired());
  EXPECT_EQ(device->memory_used(), before);
}

TEST(Queue, IsBounded) {
  CpuOptions options;
  options.queue_capacity = 4;
  const auto device = Open(options);
  const auto word = Word(*device);
  const auto commands = Appending(*device, 1);
  Gate gate;
  const TimelinePoint waits[] = {gate.point()};
  TimelinePoint last;
  for (int i = 0; i < 4; ++i) last = *device->queue().Submit(commands, {Whole(word)}, waits);
  const auto full = device->queue().Submit(commands, {Whole(word)}, {});
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted) << full.status();
  gate.Open();
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_EQ(device->queue().Submit(commands, {Whole(word)}, {})->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 11111);
}

// Either queue goes on while the other one waits.
TEST(Queues, AClosedGateHoldsItsOwnQueueOnly) {
  const auto device = Open();
  const auto word = Word(*device), copied = Word(*device);
  const auto append = Appending(*device, 7);
  const auto copy = *device->Encode({Command{CommandKind::kCopy, {}, {{0, 0}, {1, 0}, 8}}});
  Queue& compute = device->queue(QueueKind::kCompute);
  Queue& copies = device->queue(QueueKind::kCopy);
  EXPECT_EQ(&compute, &device->queue());
  EXPECT_NE(&compute, &copies);
  Gate gate;
  const TimelinePoint closed[] = {gate.point()};

  const auto held = compute.Submit(append, {Whole(word)}, closed);
  const auto passed = copies.Submit(copy, {Whole(copied), Whole(word)}, {});
  ASSERT_TRUE(held.ok() && passed.ok());
  EXPECT_EQ(passed->Wait(), absl::OkStatus());
  EXPECT_EQ(held->timeline->value(), 0u);
  gate.Open();
  EXPECT_EQ(held->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 7);

  Gate second;
  const TimelinePoint closed_again[] = {second.point()};
  const auto held_copy = copies.Submit(copy, {Whole(copied), Whole(word)}, closed_again);
  const auto passed_kernel = compute.Submit(append, {Whole(word)}, {});
  ASSERT_TRUE(held_copy.ok() && passed_kernel.ok());
  EXPECT_EQ(passed_kernel->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(copied), 0);
  second.Open();
  EXPECT_EQ(held_copy->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(copied), 77);
}

// word -> 1, copied, word -> 12, copied elsewhere: each step waits for the one on the other queue.
TEST(Queues, PointsOrderOneBehindTheOther) {
  const auto device = Open();
  const auto word = Word(*device), first = Word(*device), second = Word(*device);
  const auto copy = *device->Encode({Command{CommandKind::kCopy, {}, {{0, 0}, {1, 0}, 8}}});
  Queue& compute = device->queue(QueueKind::kCompute);
  Queue& copies = device->queue(QueueKind::kCopy);
  Gate gate;
  const auto after = [](const TimelinePoint& point) { return std::vector<TimelinePoint>{point}; };
  const auto a = *compute.Submit(Appending(*device, 1), {Whole(word)}, after(gate.point()));
  const auto b = *copies.Submit(copy, {Whole(first), Whole(word)}, after(a));
  const auto c = *compute.Submit(Appending(*device, 2), {Whole(word)}, after(b));
  const auto d = *copies.Submit(copy, {Whole(second), Whole(word)}, after(c));
  gate.Open();
  EXPECT_EQ(d.Wait(), absl::OkStatus());
  EXPECT_EQ(Value(first), 1);
  EXPECT_EQ(Value(second), 12);
}

TEST(Queues, TheCopyQueueTakesCopiesOnly) {
  const auto device = Open();
  const auto word = Word(*device);
  const auto point =
      device->queue(QueueKind::kCopy).Submit(Appending(*device, 1), {Whole(word)}, {});
  EXPECT_EQ(point.status().code(), absl::StatusCode::kInvalidArgument) << point.status();
}

constexpr char kCountUp[] =
    "define void @count(ptr %buffers, i64 %begin, i64 %end) {\n"
    "  %b = load ptr, ptr %buffers\n  %x = load i64, ptr %b\n  %y = add i64 %x, 1\n"
    "  store i64 %y, ptr %b\n  ret void\n}\n";

TEST(Queue, TenThousandSubmissionsFromTwoThreads) {
  CpuOptions options;
  options.queue_capacity = 100;  // so that the ring wraps and fills
  const auto device = Open(options);
  const auto word = Word(*device);
  const auto commands = EncodeOne(*device, LoadText(*device, kCountUp, "count"));
  const auto work = [&] {
    for (int i = 0; i < 5000;) {
      const auto point = device->queue().Submit(commands, {Whole(word)}, {});
      if (point.ok()) {
        ++i;
      } else {
        ASSERT_EQ(point.status().code(), absl::StatusCode::kResourceExhausted);
        std::this_thread::yield();
      }
    }
  };
  std::thread a(work), b(work);
  a.join();
  b.join();
  EXPECT_EQ(device->queue().last().value, 10'000u);
  EXPECT_EQ(device->queue().last().Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 10'000);
}

TEST(Queue, ClosingTheDeviceDrains) {
  auto device = Open();
  const auto word = Word(*device);
  const auto commands = Appending(*device, 1);
  TimelinePoint ran, waiting, behind;
  for (int i = 0; i < 5; ++i) ran = *device->queue().Submit(commands, {Whole(word)}, {});
  Gate never;
  const TimelinePoint waits[] = {never.point()};
  waiting = *device->queue().Submit(commands, {Whole(word)}, waits);
  behind = *device->queue().Submit(commands, {Whole(word)}, {});
  device.reset();
  EXPECT_EQ(ran.Wait(), absl::OkStatus());
  EXPECT_EQ(waiting.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(behind.Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 111111);
  never.Open();  // too late, and harmless
}

TEST(Queue, RejectsWhatDoesNotFit) {
  const auto device = Open();
  const auto word = Word(*device);
  const auto commands = Appending(*device, 1);
  const auto code = [&](std::shared_ptr<const CommandBuffer> c, std::vector<BufferView> bindings,
                        std::vector<TimelinePoint> waits = {}) {
    return device->queue().Submit(std::move(c), std::move(bindings), waits).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(nullptr, {Whole(word)}), kInvalid);
  EXPECT_EQ(code(commands, {}), kInvalid);
  EXPECT_EQ(code(commands, {BufferView{}}), kInvalid);
  EXPECT_EQ(code(commands, {{word, 0, 9}}), kInvalid);
  EXPECT_EQ(code(commands, {{word, -1, 4}}), kInvalid);
  EXPECT_EQ(code(commands, {{word, INT64_MAX, INT64_MAX}}), kInvalid);
  EXPECT_EQ(code(commands, {Whole(word)}, {{device->queue().last().timeline, 1000}}), kInvalid);
  EXPECT_EQ(Value(word), 0);
}

}  // namespace
}  // namespace telegrad
