// The CPU device as a whole: queue, timelines, memory, programs. Kernels here are LLVM IR by hand,
// where a program could not say what is needed (waiting for another thread).
#include <atomic>
#include <functional>
#include <thread>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "tests/kernels/kernel_fixture.h"

namespace telegrad {
namespace {

using testing::HasSubstr;

std::unique_ptr<Device> Open(CpuOptions options = {}) {
  if (options.threads == 0) options.threads = 2;
  if (options.memory_limit == 0) options.memory_limit = int64_t{64} << 20;
  auto device = OpenCpu(options);
  EXPECT_TRUE(device.ok()) << device.status();
  return *std::move(device);
}

std::shared_ptr<LoadedProgram> LoadText(Device& device, const std::string& text,
                                        const std::string& name) {
  const auto image = Compile(text, name, HostTarget(1));
  EXPECT_TRUE(image.ok()) << image.status();
  auto program = device.Load(*image);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// buffer[0] = buffer[0] * 10 + digit: the result tells the order of runs.
std::string AppendDigit(int digit) {
  return StrCat(
      "define void @append(ptr %buffers, i64 %begin, i64 %end) {\n"
      "  %b = load ptr, ptr %buffers\n  %x = load i64, ptr %b\n  %y = mul i64 %x, 10\n"
      "  %z = add i64 %y, ",
      digit, "\n  store i64 %z, ptr %b\n  ret void\n}\n");
}

std::shared_ptr<const CommandBuffer> EncodeOne(Device& device,
                                               std::shared_ptr<LoadedProgram> program) {
  Command command;
  command.launch.program = std::move(program);
  command.launch.arguments = {{0, 0}};
  auto encoded = device.Encode({command});
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  return *encoded;
}

std::shared_ptr<const CommandBuffer> Appending(Device& device, int digit) {
  return EncodeOne(device, LoadText(device, AppendDigit(digit), "append"));
}

BufferView Whole(std::shared_ptr<Memory> memory) { return {memory, 0, memory->size()}; }

std::shared_ptr<Memory> Word(Device& device) { return *device.Alloc(8); }
int64_t& Value(const std::shared_ptr<Memory>& word) { return *static_cast<int64_t*>(word->host()); }

// A point that the test reaches when it likes.
struct Gate {
  std::shared_ptr<Timeline> timeline = std::make_shared<Timeline>();
  TimelinePoint point() const { return {timeline, 1}; }
  void Open(const absl::Status& status = absl::OkStatus()) { timeline->Signal(1, status); }
};

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

TEST(Trace, HasEachCommandOfEachSubmission) {
  const auto device = Open();
  const auto word = Word(*device), copied = Word(*device);
  Command append, copy;
  append.launch = {LoadText(*device, AppendDigit(7), "append"), {{0, 0}}, 1, 2, 16, "add_1"};
  copy = {CommandKind::kCopy, {}, {{1, 0}, {0, 0}, 8}};
  const auto trace = std::make_shared<RunTrace>();
  const int64_t before = SteadyNs();
  const auto run = *device->queue().Submit(*device->Encode({append, copy}),
                                           {Whole(word), Whole(copied)}, {}, trace);
  const TimelinePoint waits[] = {run};
  const auto copy_back =
      *device->queue(QueueKind::kCopy)
           .Submit(*device->Encode({copy}), {Whole(copied), Whole(word)}, waits, trace);
  ASSERT_EQ(copy_back.Wait(), absl::OkStatus());
  const std::vector<TraceEvent> events = trace->events();
  ASSERT_EQ(events.size(), 3u);
  int64_t last = before;
  for (const TraceEvent& event : events) {
    EXPECT_LE(last, event.begin_ns);
    EXPECT_LE(event.begin_ns, event.end_ns);
    last = event.end_ns;
  }
  EXPECT_LE(last, SteadyNs());
  EXPECT_EQ(events[0].kind, CommandKind::kLaunch);
  EXPECT_EQ(events[0].name, "add_1");
  EXPECT_EQ(events[0].queue, "CPU:0 compute");
  EXPECT_EQ(events[0].flops, 2);
  EXPECT_EQ(events[0].bytes, 16);
  EXPECT_EQ(events[1].kind, CommandKind::kCopy);
  EXPECT_EQ(events[1].queue, "CPU:0 compute");
  EXPECT_EQ(events[1].bytes, 8);
  EXPECT_EQ(events[2].name, "copy");
  EXPECT_EQ(events[2].queue, "CPU:0 copy");
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

TEST(Encode, RejectsWhatItCannotRun) {
  class Foreign : public LoadedProgram {};
  const auto device = Open();
  const auto program = LoadText(*device, AppendDigit(1), "append");
  const auto message = [&](const std::function<void(Command&)>& spoil) {
    Command good, bad;
    good.launch.program = bad.launch.program = program;
    spoil(bad);
    const auto encoded = device->Encode({good, bad});
    EXPECT_EQ(encoded.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(encoded.status().message());
  };
  EXPECT_THAT(message([](Command& c) { c.launch.program = nullptr; }), HasSubstr("command 1"));
  EXPECT_THAT(message([](Command& c) { c.launch.program = std::make_shared<Foreign>(); }),
              HasSubstr("command 1"));
  message([](Command& c) { c.launch.arguments = {{-1, 0}}; });
  message([](Command& c) { c.launch.arguments = {{0, -8}}; });
  message([](Command& c) { c.launch.iterations = -1; });
  message([](Command& c) { c = {Command::Kind::kCopy, {}, {{0, 0}, {1, 0}, -1}}; });
  message([](Command& c) { c = {Command::Kind::kCopy, {}, {{0, INT64_MAX}, {1, 0}, 8}}; });
}

TEST(Copies, MoveBytesAndCheckTheirBounds) {
  const auto device = Open();
  auto from = *device->Alloc(16), to = *device->Alloc(16);
  std::memcpy(from->host(), "0123456789abcdef", 16);
  const auto encode = [&](CopyBytes copy) {
    return *device->Encode({Command{Command::Kind::kCopy, {}, copy}});
  };
  auto point = device->queue().Submit(encode({{0, 4}, {1, 2}, 6}), {Whole(to), Whole(from)}, {});
  ASSERT_TRUE(point.ok());
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_EQ(std::memcmp(to->host(), "\0\0\0\000234567\0\0\0\0\0\0", 16), 0);
  const auto code = [&](CopyBytes copy, std::vector<BufferView> bindings) {
    return device->queue().Submit(encode(copy), bindings, {}).status().code();
  };
  EXPECT_EQ(code({{0, 4}, {1, 0}, 13}, {Whole(to), Whole(from)}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({{0, 0}, {1, 4}, 8}, {Whole(to), Whole(to)}), absl::StatusCode::kInvalidArgument)
      << "overlaps";
  EXPECT_EQ(code({{0, 0}, {1, 8}, 8}, {Whole(to), Whole(to)}), absl::StatusCode::kOk);
}

TEST(Copies, BetweenDevicesOnTheCopyQueue) {
  CpuOptions options;
  options.index = 1;
  const auto here = Open(), there = Open(options);
  const auto from = Word(*here), to = Word(*there);
  Value(from) = 42;
  Device& copier = CopyDevice(*there, *here);
  EXPECT_EQ(copier.name(), "CPU:1");
  auto commands = *copier.Encode(
      {Command{CommandKind::kCopy, {}, {.to = {0, 0}, .from = {1, 0}, .length = 8}}});
  const auto point = copier.queue(QueueKind::kCopy).Submit(commands, {Whole(to), Whole(from)}, {});
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(to), 42);
}

// Each iteration says that it is here and waits for the other (for a while: 2^34 rounds are many
// seconds). If both ran on one thread, the first would wait in vain and record it.
TEST(Launch, IterationsRunAtTheSameTime) {
  constexpr char kMeet[] =
      "define void @meet(ptr %buffers, i64 %begin, i64 %end) {\nentry:\n"
      "  %b = load ptr, ptr %buffers\n"
      "  %n = sub i64 %end, %begin\n"
      "  %was = atomicrmw add ptr %b, i64 %n seq_cst\n"
      "  %alone = getelementptr i64, ptr %b, i64 1\n"
      "  br label %wait\n"
      "wait:\n"
      "  %i = phi i64 [ 0, %entry ], [ %j, %wait2 ]\n"
      "  %here = load atomic i64, ptr %b seq_cst, align 8\n"
      "  %both = icmp uge i64 %here, 2\n"
      "  br i1 %both, label %done, label %wait2\n"
      "wait2:\n"
      "  %j = add i64 %i, 1\n"
      "  %more = icmp ult i64 %j, 17179869184\n"
      "  br i1 %more, label %wait, label %give_up\n"
      "give_up:\n"
      "  store atomic i64 1, ptr %alone seq_cst, align 8\n"
      "  br label %done\n"
      "done:\n"
      "  %parts = getelementptr i64, ptr %b, i64 2\n"
      "  %p = atomicrmw add ptr %parts, i64 1 seq_cst\n"
      "  ret void\n}\n";
  const auto device = Open();
  const auto program = LoadText(*device, kMeet, "meet");
  const auto memory = *device->Alloc(24);
  Command command;
  command.launch = {program, {{0, 0}}, /*iterations=*/2, /*flops=*/1e9, /*bytes=*/0, "meet"};
  const auto point = device->queue().Submit(*device->Encode({command}), {Whole(memory)}, {});
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  const auto* words = static_cast<const int64_t*>(memory->host());
  EXPECT_EQ(words[0], 2) << "iterations";
  EXPECT_EQ(words[1], 0) << "an iteration was alone";
  EXPECT_EQ(words[2], 2) << "parts";

  // Work that is too small to wake anyone is one part.
  command.launch.flops = 1000;
  std::memset(memory->host(), 0, 24);
  const auto small = device->queue().Submit(*device->Encode({command}), {Whole(memory)}, {});
  ASSERT_EQ(small->Wait(), absl::OkStatus());
  EXPECT_EQ(words[2], 1);
}

TEST(Load, RejectsWhatIsNoProgram) {
  const auto device = Open();
  const auto message = [&](const ProgramImage& image) {
    const auto program = device->Load(image);
    EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(program.status().message());
  };
  const auto good = *Compile(AppendDigit(1), "append", HostTarget(1));
  EXPECT_THAT(message({"rubbish", "not an object"}), HasSubstr("rubbish"));
  EXPECT_THAT(message({"empty", ""}), HasSubstr("empty"));
  message({"cut", good.binary.substr(0, good.binary.size() / 2)});
  EXPECT_THAT(message({"other_name", good.binary}), HasSubstr("other_name"));
  // A program that asks for more of the process than it may have.
  const auto greedy = *Compile(
      "declare i32 @system(ptr)\ndefine void @greedy(ptr %b, i64 %x, i64 %y) {\n"
      "  %r = call i32 @system(ptr %b)\n  ret void\n}\n",
      "greedy", HostTarget(1));
  EXPECT_THAT(message(greedy), HasSubstr("system"));
  EXPECT_TRUE(device->Load(good).ok());
}

TEST(Load, ProgramsComeAndGoInEveryOrder) {
  auto device = Open();
  const auto image = *Compile(AppendDigit(3), "append", HostTarget(1));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) ASSERT_TRUE(device->Load(image).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  auto program = *device->Load(image);
  device.reset();
  program.reset();  // outlives its device
}

TEST(Memory, LimitIsEnforcedAndMemoryIsZeroed) {
  CpuOptions options;
  options.index = 3;
  options.memory_limit = 10'000'000;
  auto device = Open(options);
  EXPECT_EQ(device->name(), "CPU:3");
  EXPECT_EQ(device->memory_limit(), 10'000'000);
  auto memory = *device->Alloc(6'000'000);
  std::memset(memory->host(), 0xff, memory->size());
  const auto more = device->Alloc(6'000'000);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("CPU:3"));
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("10000000"));
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("6000000"));
  EXPECT_EQ(device->Alloc(-1).status().code(), absl::StatusCode::kInvalidArgument);
  memory.reset();
  memory = *device->Alloc(9'000'000);
  const auto* bytes = static_cast<const char*>(memory->host());
  EXPECT_TRUE(std::all_of(bytes, bytes + memory->size(), [](char c) { return c == 0; }));
  EXPECT_EQ((*device->Alloc(0))->size(), 0);
  device.reset();  // memory outlives its device
  std::memset(memory->host(), 1, memory->size());
}

}  // namespace
}  // namespace telegrad
