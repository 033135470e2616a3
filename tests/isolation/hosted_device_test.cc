// Drivers in processes of their own: what becomes of a device whose process is killed, hangs, is
// ended by its library, or attacks the daemon.
#include "devices/hosted/hosted_device.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "devices/hosted/hosted_control.h"
#include "engine/base/device_lost.h"
#include "tests/devices/cuda_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class HostedDevices : public ::testing::Test {
 protected:
  static HostedOptions Fake(std::vector<std::string> knobs = {}) {
    return {.executable = DEVICE_WORKER,
            .prefix = "CUDA",
            .setup = {.driver = "cuda", .library = TELEGRAD_FAKE_CUDA, .devices = 1},
            .environment = std::move(knobs)};
  }
  void Open(HostedOptions options) {
    options.on_event = [this](const WorkerEvent& event) { events_.push_back(event); };
    auto devices = OpenHosted(options, &notes_);
    if (!devices.empty()) device_ = std::move(devices[0]);
  }
  std::shared_ptr<const CommandBuffer> Next() {
    auto program = device_->Load(NextImage());
    EXPECT_TRUE(program.ok()) << program.status();
    auto encoded = device_->Encode({NextCommand(*program)});
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    return *encoded;
  }
  TimelinePoint Submit(const std::shared_ptr<const CommandBuffer>& commands,
                       const BufferView& buffer) {
    const auto point = device_->queue().Submit(commands, {buffer}, {});
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  BufferView Buffer(int64_t bytes = 8) { return Whole(*device_->Alloc(bytes)); }
  std::string Read(const BufferView& view) {
    const BufferView out = HostBuffer(*host_, std::string(view.length, '?'));
    const auto copied = Copy(*device_, out, view);
    EXPECT_EQ(copied.ok() ? copied->Wait() : copied.status(), absl::OkStatus());
    return Bytes(out);
  }
  // That a process which ended so is named, and that the device goes on in the next.
  void ExpectLost(const absl::Status& status, const std::string& how, uint64_t generation = 1) {
    EXPECT_TRUE(IsDeviceLost(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(StrCat("CUDA:0's worker (process ", events_.back().pid, ")")),
                      HasSubstr(how), HasSubstr(StrCat("(generation ", generation, ")"))));
    EXPECT_EQ(device_->Health(), status);
  }

  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::unique_ptr<Device> device_;
  std::vector<std::string> notes_;
  std::vector<WorkerEvent> events_;
};

TEST_F(HostedDevices, AreAsTheDriverShowsThem) {
  auto options = Fake();
  options.setup.devices = -1;
  const auto devices = OpenHosted(options, &notes_);
  ASSERT_EQ(devices.size(), 2u);  // of the fake
  const auto here = OpenCudas(FakeOptions(), nullptr);
  ASSERT_EQ(here.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(devices[i]->name(), here[i]->name());
    EXPECT_EQ(devices[i]->target(), here[i]->target());
    EXPECT_EQ(devices[i]->memory_limit(), here[i]->memory_limit());
    EXPECT_EQ(devices[i]->rates().launch_flops(), here[i]->rates().launch_flops());
    ASSERT_EQ(devices[i]->queues().size(), here[i]->queues().size());
    for (size_t k = 0; k < here[i]->queues().size(); ++k) {
      EXPECT_EQ(devices[i]->queues()[k]->name(), here[i]->queues()[k]->name());
    }
  }
  EXPECT_THAT(notes_, IsEmpty());
}

// A machine without them: the driver's process says so and goes, and that is no death.
TEST_F(HostedDevices, NoneIsNotOneThatHasEnded) {
  auto options = Fake();
  options.setup.library = "libNoSuchDriver.so.1";
  Open(options);
  EXPECT_EQ(device_, nullptr);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("libNoSuchDriver.so.1")));
  EXPECT_THAT(events_, IsEmpty());
}

// Who makes the code is for the daemon to say, which asks a compile worker.
TEST_F(HostedDevices, TheDaemonSaysWhoMakesTheirCode) {
  for (const bool found : {false, true}) {
    const auto assembler = [=](const std::string& arch) -> absl::StatusOr<std::string> {
      if (!found) return absl::NotFoundError("none");
      return "cubin:" + arch;
    };
    auto options = Fake();
    options.setup.assembler = kAskForAssembler;
    options.assembler = assembler;
    Open(options);
    CudaOptions there = FakeOptions();
    there.assembler = assembler;
    const auto here = OpenCudas(there, nullptr);
    ASSERT_FALSE(here.empty());
    EXPECT_EQ(device_->target(), here[0]->target());
    EXPECT_EQ(device_->target().features == "cubin:sm_90a", found);
  }
}

TEST_F(HostedDevices, OneThatIsKilledWhileItRunsIsNamedAndReplaced) {
  Open(Fake({"FAKE_CUDA_HANG_LAUNCH=2"}));
  ASSERT_NE(device_, nullptr);
  const auto next = Next();
  for (uint64_t lost = 1; lost < 4; ++lost) {
    const BufferView buffer = Buffer();
    ASSERT_EQ(Submit(next, buffer).Wait(), absl::OkStatus());
    const TimelinePoint running = Submit(next, buffer), behind = Submit(next, buffer);
    EXPECT_LT(running.timeline->value(), running.value);
    kill(events_.back().pid, SIGKILL);
    const absl::Status status = running.Wait(absl::Seconds(60));
    ExpectLost(status, "was ended by signal 9 (Killed)", lost);
    EXPECT_EQ(behind.Wait(absl::Seconds(60)), status);
    ASSERT_EQ(device_->Recover(), absl::OkStatus());
    EXPECT_EQ(device_->generation(), lost + 1);
    EXPECT_EQ(events_.back().ended, status.message());
    EXPECT_EQ(device_->queue().Submit(next, {buffer}, {}).status(), status)
        << "its memory went with the process";
  }
  const BufferView fresh = Buffer(1);
  EXPECT_EQ(Submit(next, fresh).Wait(), absl::OkStatus());
  EXPECT_EQ(Read(fresh), "\1");
}

// Of two devices of a driver, each has a process.
TEST_F(HostedDevices, TheOthersGoOn) {
  auto options = Fake();
  options.setup.devices = 2;
  options.on_event = [this](const WorkerEvent& event) { events_.push_back(event); };
  auto devices = OpenHosted(options, &notes_);
  ASSERT_EQ(devices.size(), 2u);
  ASSERT_EQ(events_.size(), 2u);
  device_ = std::move(devices[1]);
  const auto next = Next();
  const BufferView buffer = Buffer(1);
  TimelinePoint last;
  for (int i = 0; i < 100; ++i) {
    last = Submit(next, buffer);
    if (i == 50) kill(events_[0].pid, SIGKILL);
  }
  EXPECT_EQ(last.Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), std::string(1, static_cast<char>(100)));
  const auto health = devices[0]->Alloc(8).status();
  EXPECT_TRUE(IsDeviceLost(health)) << health;
  EXPECT_EQ(device_->Health(), absl::OkStatus());
  // What is of one process is not of the other.
  ASSERT_EQ(devices[0]->Recover(), absl::OkStatus());
  const BufferView theirs = Whole(*devices[0]->Alloc(1));
  EXPECT_EQ(device_->queue().Submit(next, {theirs}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(devices[0]->queue().Submit(next, {theirs}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(NeedsHost(*device_, *devices[0]));
}

// All queues are at work for each other, and with memory of this process, when the process is
// killed: every point is reached, in order, with its work done or the error of the loss.
TEST_F(HostedDevices, OneThatIsKilledUnderLoad) {
  Open(Fake({"FAKE_CUDA_DELAY_US=0"}));
  ASSERT_EQ(device_->queues().size(), 3u);
  const auto next = Next();
  Command one;
  one.kind = CommandKind::kCopy;
  one.copy = {{0, 0}, {1, 0}, 64};
  const auto copy = *device_->Encode({one});
  constexpr int kRounds = 6, kSubmissions = 300;
  for (int round = 0; round < kRounds; ++round) {
    const BufferView a = Buffer(64), b = Buffer(64);
    std::vector<std::vector<TimelinePoint>> points(3);
    Mutex mutex;
    TimelinePoint newest;
    const auto submit = [&](size_t queue) {
      const BufferView here = HostBuffer(*host_, std::string(64, 'x'));
      for (int i = 0; i < kSubmissions; ++i) {
        std::vector<TimelinePoint> waits;
        {
          const MutexLock lock(mutex);
          if (i % 3 == 0) waits.push_back(newest);
        }
        const std::vector<BufferView> views =
            i % 4 == 0   ? std::vector{a, here}
            : i % 4 == 1 ? std::vector{here, b}
                         : std::vector{queue == 1 ? b : a, queue == 1 ? a : b};
        const bool launches = queue == 0 && i % 2 == 0;
        const auto point = launches ? device_->queue().Submit(next, {a}, waits)
                                    : device_->queues()[queue]->Submit(copy, views, waits);
        if (!point.ok()) {  // from now on
          EXPECT_TRUE(IsDeviceLost(point.status())) << point.status();
          return;
        }
        points[queue].push_back(*point);
        const MutexLock lock(mutex);
        newest = *point;
      }
    };
    std::vector<std::thread> threads;
    for (size_t queue = 0; queue < 3; ++queue) threads.emplace_back(submit, queue);
    // At another place each time; in the last round, when all has ended.
    const bool at_the_end = round == kRounds - 1;
    while (!at_the_end && device_->queues()[2]->last().value < 1u + 40u * round) {
      std::this_thread::yield();
    }
    if (!at_the_end) kill(events_.back().pid, SIGKILL);
    for (std::thread& thread : threads) thread.join();
    for (const auto& of_queue : points) {
      bool lost = false;
      for (const TimelinePoint& point : of_queue) {
        const absl::Status status = point.Wait(absl::Seconds(60));
        EXPECT_TRUE(status.ok() || IsDeviceLost(status)) << status;
        EXPECT_FALSE(lost && status.ok()) << "work behind a loss has ended well";
        lost |= !status.ok();
      }
      if (at_the_end) EXPECT_FALSE(lost);
    }
    EXPECT_EQ(device_->memory_used(), 128) << "nothing holds on to what has ended";
    if (!at_the_end) {
      while (device_->Health().ok()) std::this_thread::yield();
      ASSERT_EQ(device_->Recover(), absl::OkStatus());
    }
  }
}

TEST_F(HostedDevices, OneThatAnswersNothingIsKilled) {
  auto options = Fake({"FAKE_CUDA_HANG_LAUNCH=1"});
  options.hang_limit = absl::Milliseconds(200);
  Open(options);
  const TimelinePoint running = Submit(Next(), Buffer());
  kill(events_.back().pid, SIGSTOP);
  ExpectLost(running.Wait(absl::Seconds(60)), "has not answered for 200ms and was killed");
  EXPECT_EQ(device_->Recover(), absl::OkStatus());
}

TEST_F(HostedDevices, OneThatEndsNothingIsKilled) {
  auto options = Fake({"FAKE_CUDA_HANG_LAUNCH=1"});
  options.stuck_limit = absl::Milliseconds(300);
  Open(options);
  ExpectLost(Submit(Next(), Buffer()).Wait(absl::Seconds(60)), "has ended nothing for 300ms");
  EXPECT_EQ(device_->Recover(), absl::OkStatus());
}

// A long time without work is not one without an end of work.
TEST_F(HostedDevices, OneThatHadNothingToDoIsNot) {
  auto options = Fake();
  options.run_limit = options.stuck_limit = absl::Milliseconds(300);
  Open(options);
  const auto next = Next();
  const BufferView buffer = Buffer();
  ASSERT_EQ(Submit(next, buffer).Wait(), absl::OkStatus());
  // Nothing is waited for: the time that passes is what might end it.
  const int64_t later = SteadyNs() + 3 * absl::ToInt64Nanoseconds(options.stuck_limit);
  while (SteadyNs() < later) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Submit(next, buffer).Wait(), absl::OkStatus());
}

// A sticky fault ends one process, and its text has the fault, and not the daemon.
TEST_F(HostedDevices, OneWhoseDeviceFaultsIsReplaced) {
  Open(Fake({"FAKE_CUDA_FAULT_LAUNCH=1"}));
  const auto next = Next();
  for (uint64_t lost = 1; lost < 3; ++lost) {
    const absl::Status status = Submit(next, Buffer()).Wait(absl::Seconds(60));
    ExpectLost(status, "CUDA_ERROR_ILLEGAL_ADDRESS", lost);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has lost its device"));
    ASSERT_EQ(device_->Recover(), absl::OkStatus());
  }
}

TEST_F(HostedDevices, ALibraryThatEndsItsProcessAtWork) {
  Open(Fake({"FAKE_CUDA_ABORT_LAUNCH=2"}));
  const auto next = Next();
  ASSERT_EQ(Submit(next, Buffer()).Wait(), absl::OkStatus());
  ExpectLost(Submit(next, Buffer()).Wait(absl::Seconds(60)), "was ended by signal 6 (Aborted)");
  ASSERT_EQ(device_->Recover(), absl::OkStatus());
  EXPECT_EQ(Submit(next, Buffer()).Wait(), absl::OkStatus());
}

// One order that no worker would read costs the one who gives it, and not the worker.
TEST_F(HostedDevices, AnOrderThatIsTooLongIsRefused) {
  auto options = Fake();
  options.longest_order = 4096;
  Open(options);
  const auto next = Next();
  const BufferView buffer = Buffer(1);
  ProgramImage image = NextImage();
  image.binary.insert(0, std::string(5000, '\n'));
  const absl::Status refused = device_->Load(image).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("longer than the limit of 4096"));
  const auto program = device_->Load(NextImage());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(device_->Encode(std::vector<Command>(100, NextCommand(*program))).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->Health(), absl::OkStatus());
  EXPECT_EQ(Submit(next, buffer).Wait(), absl::OkStatus());
  EXPECT_EQ(Read(buffer), "\1");
  EXPECT_EQ(events_.size(), 1u) << "it is the process that it was";
}

// A start opens one device in one process, and none to look which there are; for tenants, a second
// one beside it shows what one more takes.
TEST_F(HostedDevices, AreOpenedOnce) {
  const TemporaryDirectory folder;
  const std::filesystem::path worker = folder.path() / "worker", starts = folder.path() / "starts";
  std::ofstream(worker) << "#!/bin/sh\necho start >> " << starts.string()
                        << "\nexec " DEVICE_WORKER " \"$@\"\n";
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  auto options = Fake();
  options.executable = worker;
  options.setup.devices = -1;
  for (const bool by_tenant : {false, true}) {
    SCOPED_TRACE(by_tenant);
    std::filesystem::remove(starts);
    options.by_tenant = by_tenant;
    EXPECT_EQ(OpenHosted(options, &notes_).size(), 2u);
    EXPECT_THAT(notes_, IsEmpty());
    std::ifstream in(starts);
    int lines = 0;
    for (std::string line; std::getline(in, line);) ++lines;
    EXPECT_EQ(lines, by_tenant ? 4 : 2);
  }
}

TEST_F(HostedDevices, ALibraryThatEndsItsProcessAtOnce) {
  auto options = Fake();
  options.setup.library = ABORTING_LIBRARY;
  Open(options);
  EXPECT_EQ(device_, nullptr);
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("CUDA: cannot start CUDA:0's worker"),
                                        HasSubstr("was ended by signal 6 (Aborted)"),
                                        HasSubstr("no device would have me"))));
}

TEST_F(HostedDevices, ALibraryThatThereIsNot) {
  auto options = Fake();
  options.setup.library = "/no/such/libcuda.so.1";
  Open(options);
  EXPECT_EQ(device_, nullptr);
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("no NVIDIA driver")));
}

// Copies that are longer than the staging memory, at odd places, with launches among them.
TEST_F(HostedDevices, CopiesGoThroughTheStagingMemory) {
  Open(Fake());
  constexpr int64_t kBytes = 11'000'003;
  std::string bytes(kBytes, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 + i / 251);
  const BufferView there = Buffer(kBytes + 5);
  const BufferView from = HostBuffer(*host_, bytes), to = HostBuffer(*host_, bytes);
  const auto program = device_->Load(NextImage());
  const auto copy = [](BoundPart to, BoundPart from, int64_t length) {
    Command command;
    command.kind = CommandKind::kCopy;
    command.copy = {to, from, length};
    return command;
  };
  Command next = NextCommand(*program, 0, 5);
  // There, one more, back, and what came back there again.
  const auto commands = device_->Encode({copy({0, 5}, {1, 0}, kBytes), next, next,
                                         copy({2, 0}, {0, 5}, kBytes), copy({1, 0}, {2, 0}, 100),
                                         copy({0, 5}, {1, 0}, 100), next, copy({2, 0}, {0, 5}, 1)});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const auto trace = std::make_shared<RunTrace>();
  const int64_t before = SteadyNs();
  const auto point = device_->queue().Submit(*commands, {there, from, to}, {}, trace);
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  bytes[0] += 3;
  EXPECT_TRUE(Bytes(to) == bytes);
  const auto events = trace->events();
  ASSERT_EQ(events.size(), 8u);
  int64_t at = before;
  for (const TraceEvent& event : events) {
    EXPECT_LE(at, event.begin_ns);
    EXPECT_LE(event.begin_ns, event.end_ns);
    at = event.end_ns;
  }
  EXPECT_LE(at, SteadyNs());
}

// The driver there locks each queue's part of it once, so the GPU copies from and to it by itself:
// here there is no other memory through which it could, and nothing more than that is locked.
TEST_F(HostedDevices, TheStagingMemoryIsLockedOnceForEachQueue) {
  constexpr int64_t kPart = kStagingBlocks * kStagingBlock;
  const auto move = [this](int64_t bytes) -> absl::Status {
    const BufferView there = Buffer(bytes);
    const BufferView from = HostBuffer(*host_, std::string(static_cast<size_t>(bytes), 'm'));
    const BufferView to = HostBuffer(*host_, std::string(static_cast<size_t>(bytes), '?'));
    TG_ASSIGN_OR_RETURN(const TimelinePoint in, Copy(*device_, there, from));
    TG_RETURN_IF_ERROR(in.Wait());
    TG_ASSIGN_OR_RETURN(const TimelinePoint out,
                        Copy(*device_, to, there, {}, QueueKind::kCopyOut));
    TG_RETURN_IF_ERROR(out.Wait());
    EXPECT_TRUE(Bytes(to) == Bytes(from));
    return absl::OkStatus();
  };
  const std::string no_chunks = "FAKE_CUDA_HOST_ALLOC_ERROR=2";
  HostedOptions options = Fake({no_chunks, "FAKE_CUDA_MOST_REGISTRATIONS=2"});
  options.setup.pinned = 2 * kPart;
  Open(options);
  for (int round = 0; round < 3; ++round) EXPECT_EQ(move(11'000'003), absl::OkStatus());
  // Within the limit only.
  options.setup.pinned = 2 * kPart - 1;
  Open(options);
  EXPECT_EQ(move(1000).code(), absl::StatusCode::kResourceExhausted)
      << "one of two queues has none";
  // Where the driver locks none, its queues copy through what they allocate, as from other memory.
  options.setup.pinned = 2 * kPart;
  options.environment = {"FAKE_CUDA_REGISTER_ERROR=2"};
  Open(options);
  EXPECT_EQ(move(11'000'003), absl::OkStatus());
}

// A run that is cancelled ends before its next command; what waits for it fails as it does.
TEST_F(HostedDevices, CancellationsReachTheProcess) {
  Open(Fake());
  const auto program = device_->Load(NextImage());
  const auto many = device_->Encode(std::vector<Command>(2000, NextCommand(*program)));
  ASSERT_TRUE(many.ok()) << many.status();
  const auto cancellation = std::make_shared<Cancellation>();
  const BufferView buffer = Buffer(), other = Buffer();
  std::vector<TimelinePoint> points;
  for (int i = 0; i < 50; ++i) {
    const auto point = device_->queue().Submit(*many, {buffer}, {}, nullptr, cancellation);
    ASSERT_TRUE(point.ok()) << point.status();
    points.push_back(*point);
  }
  const auto dependent = Copy(*device_, other, HostBuffer(*host_, "x"), {points.back()});
  ASSERT_TRUE(dependent.ok()) << dependent.status();
  cancellation->Cancel();
  const absl::Status status = points.back().Wait(absl::Seconds(60));
  EXPECT_EQ(status, absl::CancelledError("the run was cancelled"));
  EXPECT_EQ(dependent->Wait(absl::Seconds(60)), status);
  EXPECT_EQ(Submit(Next(), buffer).Wait(), absl::OkStatus());
}

// What a point's end calls back may ask the device for anything but to wait for its points.
TEST_F(HostedDevices, WhatAPointCallsBackMayAskTheDevice) {
  Open(Fake());
  const auto next = Next();
  const BufferView buffer = Buffer();
  for (int i = 0; i < 20; ++i) {
    const Gate gate;
    const TimelinePoint waits[] = {gate.point()};
    const auto ran = device_->queue().Submit(next, {buffer}, waits);
    ASSERT_TRUE(ran.ok()) << ran.status();
    const auto told = std::make_shared<Timeline>();
    ran->timeline->OnReached(ran->value, [&, told](const absl::Status& status) {
      const BufferView fresh = Buffer();
      const auto again = device_->queue().Submit(Next(), {fresh}, {});
      EXPECT_TRUE(again.ok()) << again.status();
      told->Signal(1, status);
    });
    gate.Open();
    ASSERT_EQ(told->Wait(1, absl::Seconds(60)), absl::OkStatus());
  }
  EXPECT_EQ(device_->queue().last().Wait(), absl::OkStatus());
}

// What nobody has used is given back to the driver there, and counts until then.
TEST_F(HostedDevices, GiveIdleMemoryBack) {
  constexpr int64_t kChunk = 2 << 20;  // of the fake
  Open(Fake({"FAKE_CUDA_VIRTUAL_MEMORY=1"}));
  const auto give_back = [&] {
    auto bytes = device_->idle_memory()->GiveBack();
    while (absl::IsFailedPrecondition(bytes.status())) bytes = device_->idle_memory()->GiveBack();
    return bytes.value_or(-1);
  };
  BufferView kept = Buffer(kChunk), freed = Buffer(8 * kChunk);
  freed = {};
  EXPECT_EQ(give_back(), 0) << "it has just been freed";
  EXPECT_EQ(device_->memory_footprint(), 9 * kChunk);
  EXPECT_EQ(device_->memory_used(), kChunk);
  EXPECT_EQ(give_back(), 8 * kChunk);
  EXPECT_EQ(device_->memory_footprint(), kChunk);
}

TEST_F(HostedDevices, HaveTheSensorsOfTheirHardware) {
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  const std::string folder = std::filesystem::path(FAKE_NVML).parent_path();
  const std::string kept = before == nullptr ? "" : before;
  setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
  Open(Fake());
  before == nullptr ? unsetenv("LD_LIBRARY_PATH") : setenv("LD_LIBRARY_PATH", kept.c_str(), 1);
  CudaOptions there = FakeOptions();
  there.management = FAKE_NVML;
  const auto here = OpenCudas(there, nullptr);
  ASSERT_FALSE(here.empty());
  ASSERT_NE(device_->sensors(), nullptr);
  const Readings expected = here[0]->sensors()->Read(), readings = device_->sensors()->Read();
  int told = 0;
  for (int i = 0; i < kNumSensors; ++i) {
    EXPECT_EQ(readings[static_cast<Sensor>(i)], expected[static_cast<Sensor>(i)]) << i;
    told += readings[static_cast<Sensor>(i)] ? 1 : 0;
  }
  EXPECT_GT(told, 0);
}

// Its temporary files go with it, however it ends.
TEST_F(HostedDevices, NoFolderIsLeft) {
  const TemporaryDirectory here;
  const std::string before = std::getenv("TMPDIR") == nullptr ? "" : std::getenv("TMPDIR");
  setenv("TMPDIR", here.path().c_str(), 1);
  Open(Fake({"FAKE_CUDA_HANG_LAUNCH=1"}));
  EXPECT_FALSE(std::filesystem::is_empty(here.path()));
  const TimelinePoint running = Submit(Next(), Buffer());
  kill(events_.back().pid, SIGKILL);
  EXPECT_FALSE(running.Wait(absl::Seconds(60)).ok());
  device_.reset();
  EXPECT_TRUE(std::filesystem::is_empty(here.path()));
  before.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before.c_str(), 1);
}

class HostileDrivers : public HostedDevices {
 protected:
  // `patient`: with one that is slow because of what it sends.
  void OpenFor(const std::string& attack, bool patient = false) {
    device_.reset();
    notes_.clear();
    Open({.executable = HOSTILE_DRIVER,
          .prefix = "EVIL",
          .setup = {.driver = "cuda", .library = attack},
          .hang_limit = absl::Milliseconds(300),
          .stuck_limit = patient ? absl::Minutes(1) : absl::Seconds(5)});
  }
  // How a traced run ends there; the times of its events are what can be.
  absl::Status RunOn(const std::string& attack) {
    OpenFor(attack);
    EXPECT_NE(device_, nullptr) << attack;
    if (device_ == nullptr) return absl::OkStatus();
    const auto memory = device_->Alloc(8);
    if (!memory.ok()) return memory.status();
    const auto program = device_->Load(NextImage());
    if (!program.ok()) return program.status();
    const auto commands = device_->Encode({NextCommand(*program), NextCommand(*program)});
    if (!commands.ok()) return commands.status();
    const auto trace = std::make_shared<RunTrace>();
    const int64_t before = SteadyNs();
    const auto point = device_->queue().Submit(*commands, {Whole(*memory)}, {}, trace);
    if (!point.ok()) return point.status();
    const absl::Status status = point->Wait(absl::Seconds(60));
    EXPECT_LE(trace->events().size(), 2u);
    for (const TraceEvent& event : trace->events()) {
      EXPECT_LE(before, event.begin_ns);
      EXPECT_LE(event.begin_ns, event.end_ns);
      EXPECT_LE(event.end_ns, SteadyNs());
    }
    return status;
  }
};

// What waits for another queue of the process, whose work takes longer in all, is not stuck.
TEST_F(HostileDrivers, WhoIsSlowAndGoesOnIsNot) {
  Open({.executable = HOSTILE_DRIVER,
        .prefix = "EVIL",
        .setup = {.driver = "cuda", .library = "slow"},
        .run_limit = absl::Milliseconds(1500)});
  ASSERT_NE(device_, nullptr);
  const auto next = Next();
  const BufferView buffer = Buffer(), other = Buffer();
  const auto copy = device_->Encode({CopyCommand({.to = {1, 0}, .from = {0, 0}, .length = 8})});
  ASSERT_TRUE(copy.ok()) << copy.status();
  TimelinePoint last;
  for (int i = 0; i < 10; ++i) last = Submit(next, buffer);
  Queue& copies = device_->queue(QueueKind::kCopy);
  ASSERT_NE(&copies, &device_->queue());
  const auto copied = copies.Submit(*copy, {buffer, other}, std::vector{last});
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ(copied->Wait(absl::Seconds(60)), absl::OkStatus());
}

TEST_F(HostileDrivers, WhatTheySayOfTheirDeviceIsChecked) {
  for (const char* attack : {"no_queues", "too_many_queues", "queue_of_another", "another_device",
                             "rates", "negative_limit", "negative"}) {
    SCOPED_TRACE(attack);
    OpenFor(attack);
    EXPECT_EQ(device_, nullptr);
    EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("EVIL:0"), HasSubstr("EVIL"))));
  }
}

// Of one that says that there are more than there can be, not all are looked for.
TEST_F(HostileDrivers, TheirNumberIsLimited) {
  OpenFor("endless");
  EXPECT_NE(device_, nullptr);
  EXPECT_EQ(notes_.size(), kMaxHostedDevices - 1) << "the others say that they are EVIL:0, too";
}

TEST_F(HostileDrivers, AListThatIsCutAnywhereIsNone) {
  for (int at = 0; at < 400; at += 7) {
    SCOPED_TRACE(at);
    OpenFor(StrCat("list_", at));
    EXPECT_EQ(device_, nullptr);
    EXPECT_THAT(notes_, ElementsAre(HasSubstr("malformed description")));
  }
}

TEST_F(HostileDrivers, AnswersThatAreNone) {
  for (const char* attack :
       {"answers_another", "answers_garbage", "answers_no_frame", "answers_half", "answers_twice",
        "unasked_times", "unasked_loss", "ends_too_much", "no_times"}) {
    SCOPED_TRACE(attack);
    const absl::Status status = RunOn(attack);
    EXPECT_TRUE(IsDeviceLost(status)) << status;
    EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
  }
}

TEST_F(HostileDrivers, AStatusThatThereIsNot) {
  const absl::Status status = RunOn("unknown_code");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(status.message().size(), 484u);
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos);
}

// The length of an error's text is another each time that it is read.
TEST_F(HostileDrivers, ALengthIsReadOnce) {
  OpenFor("flips_length");
  ASSERT_NE(device_, nullptr);
  const auto memory = device_->Alloc(8);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto program = device_->Load(NextImage());
  ASSERT_TRUE(program.ok()) << program.status();
  const auto commands = device_->Encode({NextCommand(*program)});
  ASSERT_TRUE(commands.ok()) << commands.status();
  for (int i = 0; i < 1000; ++i) {
    const auto point = device_->queue().Submit(*commands, {Whole(*memory)}, {});
    ASSERT_TRUE(point.ok()) << point.status();
    const absl::Status status = point->Wait(absl::Seconds(60));
    ASSERT_FALSE(status.ok());
    ASSERT_LE(status.message().size(), kHostedMessage);
  }
}

TEST_F(HostileDrivers, WildTimesAreTamed) { EXPECT_EQ(RunOn("wild_times"), absl::OkStatus()); }

// What is answered behind the times has been read behind them.
TEST_F(HostileDrivers, TimesTakeNoMoreMemoryThanTheCommandsThatTheyAreOf) {
  OpenFor("heavy_times", /*patient=*/true);
  ASSERT_NE(device_, nullptr);
  const auto resident = [] {
    int64_t pages = 0;
    std::ifstream in("/proc/self/statm");
    in >> pages >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  };
  const auto memory = device_->Alloc(8);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto program = device_->Load(NextImage());
  ASSERT_TRUE(program.ok()) << program.status();
  const auto commands = device_->Encode({NextCommand(*program)});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const int64_t before = resident();
  const auto trace = std::make_shared<RunTrace>();
  for (int i = 0; i < 24; ++i) {
    ASSERT_TRUE(device_->queue().Submit(*commands, {Whole(*memory)}, {}, trace).ok());
  }
  ASSERT_TRUE(device_->Alloc(8).ok());
  EXPECT_LT(resident() - before, int64_t{24} * static_cast<int64_t>(kMaxHostedAnswer) / 2);
}

TEST_F(HostileDrivers, AnythingAtAll) {
  for (int seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    (void)RunOn(StrCat("random_frames", seed));
    (void)RunOn(StrCat("random_memory", seed));
  }
}

}  // namespace
}  // namespace telegrad
