// Every driver is tested against the contract of devices/api/device.h. A driver's row names the
// requirements that it does not meet, with the reason.
#include <functional>
#include <thread>

#include "devices/disk/disk_device.h"
#include "devices/npy/npy_device.h"
#include "devices/null/null_device.h"
#include "devices/worker/worker_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "tests/devices/cuda_fixture.h"
#include "tests/devices/hip_fixture.h"
#include "tests/opencl/opencl_fixture.h"
#ifdef FAKE_PTXAS  // not where the suite travels to other machines
#include "tests/nv/nv_fixture.h"
#endif
#ifdef TELEGRADD  // where there is gRPC
#include "devices/remote/remote_device.h"
#include "engine/ir/graph.h"
#include "engine/wire/graph_bytes.h"
#include "tests/server/process.h"
#endif

namespace telegrad {
namespace {

using ::testing::HasSubstr;

struct QueueLimits {
  int capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
};

// A program `next` that adds 1 to the first byte of its buffer.
absl::StatusOr<ProgramImage> HostNext() {
  return Compile(
      "define void @next(ptr %buffers, i64 %begin, i64 %end) {\n"
      "  %b = load ptr, ptr %buffers\n  %x = load i8, ptr %b\n  %y = add i8 %x, 1\n"
      "  store i8 %y, ptr %b\n  ret void\n}\n",
      "next", HostTarget(1));
}

struct TestedDriver {
  std::string name;
  std::function<std::unique_ptr<Device>(const QueueLimits&)> open;
  std::function<absl::StatusOr<ProgramImage>()> next = &HostNext;
  // Why this machine has none; null: every machine has.
  std::function<std::string()> absent = nullptr;
  // Why a part of the contract is excluded; empty: it is not.
  std::string no_contents = "", no_alloc = "", no_programs = "";
};

constexpr int64_t kLimit = 10'000'000;

const std::filesystem::path& DiskRoot() {
  static const TemporaryDirectory directory;
  return directory.path();
}

std::unique_ptr<Device> OpenGpu(CudaOptions options, const QueueLimits& limits) {
  options.devices = 1;
  options.memory_limit = kLimit;
  options.queue_capacity = limits.capacity;
  options.wait_limit = limits.wait_limit;
  auto devices = OpenCudas(options, nullptr);
  EXPECT_EQ(devices.size(), 1u);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

std::string WhyNoGpu() {
  std::vector<std::string> notes;
  if (!OpenCudas({.devices = 1}, &notes).empty()) return "";
  return notes.empty() ? "no GPU" : notes[0];
}

#ifdef FAKE_PTXAS
// A raw GPU with the fake kernel driver that it runs on.
std::unique_ptr<Device> OpenRaw(const QueueLimits& limits) {
  static std::unique_ptr<fakes::FakeDriver> driver;
  driver = std::make_unique<fakes::FakeDriver>();
  driver->Start();
  NvOptions options = FakeNvOptions(*driver);
  options.memory_limit = kLimit;
  options.queue_capacity = limits.capacity;
  options.wait_limit = limits.wait_limit;
  std::vector<std::string> notes;
  auto devices = OpenNvs(options, &notes);
  EXPECT_EQ(devices.size(), 1u) << (notes.empty() ? "" : notes[0]);
  return devices.empty() ? nullptr : std::move(devices[0]);
}
#endif
std::string WhyNoAmd() {
  std::vector<std::string> notes;
  if (!OpenHips({.devices = 1}, &notes).empty()) return "";
  return notes.empty() ? "no GPU" : notes[0];
}

std::unique_ptr<Device> OpenAmd(HipOptions options, const QueueLimits& limits) {
  options.devices = 1;
  options.memory_limit = kLimit;
  options.queue_capacity = limits.capacity;
  options.wait_limit = limits.wait_limit;
  auto devices = OpenHips(options, nullptr);
  EXPECT_EQ(devices.size(), 1u);
  return devices.empty() ? nullptr : std::move(devices[0]);
}

// Of the fake library, with that processor.
std::unique_ptr<Device> OpenFakeAmd(int64_t processor, const QueueLimits& limits) {
  static FakeHip* const fake = new FakeHip();
  fake->Set("processor", processor);
  return OpenAmd(FakeHipOptions(), limits);
}

std::unique_ptr<Device> OpenFirstOpenCl(const QueueLimits& limits) {
  return OpenOpenClDevice(
      {.memory_limit = kLimit, .queue_capacity = limits.capacity, .wait_limit = limits.wait_limit});
}

absl::StatusOr<ProgramImage> OpenClNext() {
  return Compile(kNextOpenCl, "next", OpenOpenClDevice()->target(),
                 {.opencl_library = OpenClLibrary()});
}
#ifdef TELEGRADD
// The first device of a daemon that has no other client.
std::unique_ptr<Device> OpenFar(const QueueLimits& limits) {
  static std::unique_ptr<testing::Process> daemon;
  daemon = std::make_unique<testing::Process>(
      TELEGRADD, std::vector<std::string>{"--listen", "127.0.0.1:0", "--cuda-devices", "0",
                                          "--cpu-memory", StrCat(kLimit), "--log-level", "off"});
  const std::string address = daemon->Line("listening on ");
  daemon->ReadOn();
  auto devices = OpenRemote({.name = "far",
                             .address = address,
                             .queue_capacity = limits.capacity,
                             .wait_limit = limits.wait_limit},
                            nullptr);
  EXPECT_TRUE(devices.ok()) << devices.status();
  return devices.ok() ? std::move((*devices)[0]) : nullptr;
}

// The same as a graph: its slot of one byte is one more.
absl::StatusOr<ProgramImage> GraphNext() {
  Graph g;
  const UOp x = g.Param(0, DType::kUInt8, Shape{1});
  const UOp next = g.Make(Op::kAdd, {x, g.Const(DType::kUInt8, 1)});
  const UOp sink = g.Make(Op::kSink, {g.Make(Op::kStore, {x, next})});
  return ProgramImage{.name = "next", .binary = GraphBytes(sink)};
}
#endif

std::vector<TestedDriver> AllDrivers() {
  return {
#ifdef TELEGRADD
      {.name = "remote", .open = &OpenFar, .next = &GraphNext},
#endif
      {.name = "cpu",
       .open =
           [](const QueueLimits& limits) {
             return *OpenCpu({.threads = 2,
                              .memory_limit = kLimit,
                              .queue_capacity = limits.capacity,
                              .wait_limit = limits.wait_limit});
           }},
#ifdef DEVICE_WORKER  // not where the suite travels to other machines
      {.name = "worker",
       .open =
           [](const QueueLimits& limits) {
             return *OpenWorkerDevice({.cpu = {.threads = 2,
                                               .memory_limit = kLimit,
                                               .queue_capacity = limits.capacity,
                                               .wait_limit = limits.wait_limit},
                                       .executable = DEVICE_WORKER});
           }},
#endif
      {.name = "null",
       .open = [](const QueueLimits& limits) -> std::unique_ptr<Device> {
         return OpenNull({.memory_limit = kLimit,
                          .queue_capacity = limits.capacity,
                          .wait_limit = limits.wait_limit});
       },
       .no_contents = "a null device runs nothing, so its copies leave no bytes"},
      {.name = "disk",
       .open =
           [](const QueueLimits& limits) {
             return *OpenDisk({.name = "test",
                               .directory = DiskRoot(),
                               .growth = kLimit,
                               .queue_capacity = limits.capacity,
                               .wait_limit = limits.wait_limit});
           },
       .no_programs = "a disk copies only"},
      {.name = "npy",
       .open = [](const QueueLimits& limits) -> std::unique_ptr<Device> {
         return OpenNpy({.queue_capacity = limits.capacity, .wait_limit = limits.wait_limit});
       },
       .no_alloc = "host arrays belong to the caller; they are imported",
       .no_programs = "host arrays are copied only"},
      {.name = "cuda_fake",
       .open = [](const QueueLimits& limits) { return OpenGpu(FakeOptions(), limits); },
       .next = &NextImage},
      {.name = "cuda",
       .open = [](const QueueLimits& limits) { return OpenGpu({}, limits); },
       .next = &NextImage,
       .absent = &WhyNoGpu},
#ifdef FAKE_PTXAS
      {.name = "nv_fake", .open = &OpenRaw, .next = &NextCubin},
#endif
      {.name = "hip_fake_wave64",
       .open = [](const QueueLimits& limits) { return OpenFakeAmd(0x942, limits); },
       .next = [] { return NextHip("gfx942"); }},
      {.name = "hip_fake_wave32",
       .open = [](const QueueLimits& limits) { return OpenFakeAmd(0x1100, limits); },
       .next = [] { return NextHip("gfx1100"); }},
      {.name = "hip",
       .open = [](const QueueLimits& limits) { return OpenAmd({}, limits); },
       .next = [] { return NextHip(OpenAmd({}, {})->target().arch); },
       .absent = &WhyNoAmd},
      {.name = "opencl",
       .open = &OpenFirstOpenCl,
       .next = &OpenClNext,
       .absent = [] { return WhyNoOpenCl(); }},
  };
}

class Conformance : public ::testing::TestWithParam<TestedDriver> {
 protected:
  void SetUp() override {
    if (GetParam().absent == nullptr) return;
    if (const std::string why = GetParam().absent(); !why.empty()) GTEST_SKIP() << why;
  }

  void OpenDevice(const QueueLimits& limits = {}) { device_ = GetParam().open(limits); }

  // A buffer of the device, zeroed.
  BufferView Buffer(int64_t bytes) {
    if (auto* npy = dynamic_cast<NpyDevice*>(device_.get())) {
      const auto array = std::make_shared<std::vector<char>>(bytes);
      return Whole(*npy->Import(array->data(), bytes, array));
    }
    auto memory = device_->Alloc(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return Whole(*memory);
  }
  TimelinePoint Copied(const BufferView& to, const BufferView& from,
                       std::vector<TimelinePoint> waits = {}) {
    const auto point = Copy(*device_, to, from, std::move(waits));
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  std::string Read(const BufferView& buffer) {
    const BufferView out = HostBuffer(*host_, std::string(buffer.length, '?'));
    EXPECT_EQ(Copied(out, buffer).Wait(), absl::OkStatus());
    return Bytes(out);
  }
  void ExpectBytes(const BufferView& buffer, const std::string& expected) {
    if (GetParam().no_contents.empty()) {
      EXPECT_EQ(Read(buffer), expected);
    }
  }

  std::unique_ptr<Device> host_ = OpenHost({.index = 7});  // where bytes come from and go to
  std::unique_ptr<Device> device_;
};

#define SKIP_IF_EXCLUDED(what) \
  if (!GetParam().what.empty()) GTEST_SKIP() << GetParam().what

TEST_P(Conformance, SaysWhatItIs) {
  OpenDevice();
  EXPECT_EQ(device_->name().find(':'), device_->name().rfind(':'));
  EXPECT_EQ(device_->Health(), absl::OkStatus());
  const BufferView buffer = Buffer(100);
  EXPECT_EQ(buffer.memory->size(), 100);
  EXPECT_EQ(buffer.memory->host() != nullptr, device_->host_visible());
  EXPECT_GE(device_->memory_used(), 100);
  EXPECT_GE(device_->memory_limit(), device_->memory_used());
}

TEST_P(Conformance, CopiesMoveBytes) {
  SKIP_IF_EXCLUDED(no_contents);
  OpenDevice();
  const BufferView buffer = Buffer(16);
  EXPECT_EQ(Read(buffer), std::string(16, '\0'));
  const BufferView from = HostBuffer(*host_, "0123456789");
  auto commands =
      *device_->Encode({CopyCommand({{0, 4}, {1, 2}, 6}), CopyCommand({{0, 0}, {0, 5}, 3}),
                        CopyCommand({{0, 15}, {1, 9}, 0})});
  const auto point = device_->queue(QueueKind::kCopy).Submit(commands, {buffer, from}, {});
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string("345\0"
                                      "234567\0\0\0\0\0\0",
                                      16));
  EXPECT_EQ(Read({buffer.memory, 5, 3}), "345");
}

// Larger than what a driver may move at once, and not a multiple of it.
TEST_P(Conformance, LongCopiesBetweenItsOwnBuffers) {
  SKIP_IF_EXCLUDED(no_contents);
  OpenDevice();
  std::string bytes(3'000'001, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  const BufferView first = Buffer(bytes.size()), second = Buffer(bytes.size());
  Copied(first, HostBuffer(*host_, bytes));
  Copied(second, first);
  EXPECT_TRUE(Read(second) == bytes);
}

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

TEST_P(Conformance, RejectsWhatDoesNotFit) {
  class Foreign : public CommandBuffer {};
  OpenDevice();
  const BufferView buffer = Buffer(8), from = HostBuffer(*host_, "12345678");
  Queue& queue = device_->queue(QueueKind::kCopy);
  const auto commands = *device_->Encode({CopyCommand({{0, 0}, {1, 0}, 8})});
  const auto submit = [&](std::shared_ptr<const CommandBuffer> c, std::vector<BufferView> bindings,
                          std::vector<TimelinePoint> waits = {}) {
    return queue.Submit(std::move(c), std::move(bindings), waits).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(submit(nullptr, {buffer, from}), kInvalid);
  EXPECT_EQ(submit(std::make_shared<Foreign>(), {buffer, from}), kInvalid);
  EXPECT_EQ(submit(commands, {buffer}), kInvalid);
  EXPECT_EQ(submit(commands, {buffer, BufferView{}}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, 0, 9}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, 0, 7}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, -1, 8}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {{buffer.memory, INT64_MAX, INT64_MAX}, from}), kInvalid);
  EXPECT_EQ(submit(commands, {buffer, buffer}), kInvalid) << "overlaps itself";
  EXPECT_EQ(submit(commands, {buffer, from}, {{queue.last().timeline, 1000}}), kInvalid);
  EXPECT_EQ(queue.last().value, 0u);
  ExpectBytes(buffer, std::string(8, '\0'));
}

TEST_P(Conformance, RejectsCommandsThatAreMalformed) {
  OpenDevice();
  const auto code = [&](const Command& bad) {
    const auto encoded = device_->Encode({CopyCommand({{0, 0}, {1, 0}, 1}), bad});
    EXPECT_THAT(std::string(encoded.status().message()), HasSubstr("command 1"));
    return encoded.status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code(CopyCommand({{0, 0}, {1, 0}, -1})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{0, INT64_MAX}, {1, 0}, 8})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{-1, 0}, {1, 0}, 8})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{0, 0}, {1 << 30, 0}, 8})), kInvalid);
  EXPECT_EQ(code(CopyCommand({{0, 0}, {1, -8}, 8})), kInvalid);
  EXPECT_EQ(code(Command{}), kInvalid) << "a launch without a program";
}

TEST_P(Conformance, TracesEachCommand) {
  OpenDevice();
  const BufferView buffer = Buffer(4), from = HostBuffer(*host_, "1234");
  const auto commands =
      *device_->Encode({CopyCommand({{0, 0}, {1, 0}, 4}), CopyCommand({{0, 0}, {1, 1}, 2})});
  const auto trace = std::make_shared<RunTrace>();
  const int64_t before = SteadyNs();
  const auto point = device_->queue(QueueKind::kCopy).Submit(commands, {buffer, from}, {}, trace);
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  const std::vector<TraceEvent> events = trace->events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_LE(before, events[0].begin_ns);
  EXPECT_LE(events[0].begin_ns, events[0].end_ns);
  EXPECT_LE(events[0].end_ns, events[1].begin_ns);
  EXPECT_LE(events[1].end_ns, SteadyNs());
  EXPECT_EQ(events[0].bytes, 4);
  EXPECT_EQ(events[1].bytes, 2);
  EXPECT_THAT(events[1].queue, HasSubstr(device_->name()));
}

TEST_P(Conformance, CopiesInBothDirectionsHaveADevice) {
  SKIP_IF_EXCLUDED(no_contents);
  OpenDevice();
  const BufferView buffer = Buffer(1), out = HostBuffer(*host_, "?");
  Device& in = CopyDevice(*device_, *host_);
  const TimelinePoint there = *Copy(in, buffer, HostBuffer(*host_, "x"));
  Device& back = CopyDevice(*host_, *device_);
  const TimelinePoint here = *Copy(back, out, buffer, {there});
  EXPECT_EQ(here.Wait(), absl::OkStatus());
  EXPECT_EQ(Bytes(out), "x");
}

TEST_P(Conformance, MemoryIsLimitedAndZeroed) {
  SKIP_IF_EXCLUDED(no_alloc);
  OpenDevice();
  BufferView buffer = Buffer(6'000'000);
  Copied(buffer, HostBuffer(*host_, "used"));
  const auto more = device_->Alloc(6'000'000);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  for (const std::string& part : {device_->name(), StrCat(kLimit), std::string("6000000")}) {
    EXPECT_THAT(std::string(more.status().message()), HasSubstr(part));
  }
  EXPECT_EQ(device_->Alloc(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device_->queue(QueueKind::kCopy).last().Wait(), absl::OkStatus());
  buffer = {};
  buffer = Buffer(9'000'000);
  ExpectBytes({buffer.memory, 0, 100}, std::string(100, '\0'));
  EXPECT_EQ((*device_->Alloc(0))->size(), 0);
  device_.reset();  // memory outlives its device
  EXPECT_EQ(buffer.memory->size(), 9'000'000);
}

TEST_P(Conformance, LaunchesRunInOrder) {
  SKIP_IF_EXCLUDED(no_programs);
  OpenDevice();
  const auto image = GetParam().next();
  ASSERT_TRUE(image.ok()) << image.status();
  Command next;
  next.launch.program = *device_->Load(*image);
  next.launch.arguments = {{0, 0}};
  const auto commands = *device_->Encode({next, CopyCommand({{0, 1}, {0, 0}, 1}), next});
  const BufferView buffer = Buffer(2);
  const TimelinePoint upload = Copied(buffer, HostBuffer(*host_, "a"));
  const TimelinePoint waits[] = {upload};
  const auto point = device_->queue().Submit(commands, {buffer}, waits);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->Wait(), absl::OkStatus());
  ExpectBytes(buffer, "cb");
}

TEST_P(Conformance, OnlyFilesAreOpened) {
  OpenDevice();
  if (GetParam().name == "disk") GTEST_SKIP() << "a disk has files; disk_test.cc opens them";
  EXPECT_EQ(device_->Open("file", 0, 1, OpenMode::kRead).status().code(),
            absl::StatusCode::kUnimplemented);
}

INSTANTIATE_TEST_SUITE_P(Drivers, Conformance, ::testing::ValuesIn(AllDrivers()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace telegrad
