// The CPU device apart from its queues (queue_test.cc): traces, command lists, copies, launches,
// programs, memory.
#include <functional>
#include <thread>

#include "tests/kernels/device_kernels.h"

namespace telegrad {
namespace {

using testing::HasSubstr;

TEST(Trace, HasEachCommandOfEachSubmission) {
  const auto device = Open();
  const auto word = Word(*device), copied = Word(*device);
  Command append, copy;
  append.launch = Launch::Of(LoadText(*device, AppendDigit(7), "append"));
  append.launch.arguments = {{0, 0}};
  append.launch.flops = 2;
  append.launch.bytes = 16;
  append.launch.name = "add_1";
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

TEST(Encode, RejectsWhatItCannotRun) {
  class Foreign : public LoadedProgram {};
  const auto device = Open();
  const auto program = LoadText(*device, AppendDigit(1), "append");
  const auto message = [&](const std::function<void(Command&)>& spoil) {
    Command good, bad;
    good.launch = Launch::Of(program);
    good.launch.arguments = {{0, 0}};
    bad = good;
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
  message([](Command& c) { c.launch.grid.x = -1; });
  EXPECT_THAT(message([](Command& c) { c.launch.grid.z = 2; }), HasSubstr("a CPU has one of x"));
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
  command.launch = Launch::Of(program);
  command.launch.arguments = {{0, 0}};
  command.launch.grid.x = 2;
  command.launch.flops = 1e9;
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
