// CPU devices in worker processes: their results, and the state of runs and buffers after a worker
// was killed, hung or faulted.
#include "devices/worker/worker_device.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "devices/api/shared_memory.h"
#include "devices/api/trace.h"
#include "devices/cpu/interrupt.h"
#include "devices/worker/device_worker.h"
#include "engine/base/device_lost.h"
#include "engine/base/sanitizers.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "tests/fakes/temporary_directory.h"
#include "tests/isolation/worker_devices.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(WorkerDevices, KernelsRunInAnotherProcess) {
  Device& device = Open();
  const BufferView word = Word(device);
  Value(word) = 40;
  EXPECT_EQ(Run(device, Commands(device, Image(kNext, "next"), 2), word), absl::OkStatus());
  EXPECT_EQ(Value(word), 42);
  const WorkerEvent started = Event(0);
  EXPECT_EQ(started.worker, "CPU:0's worker");
  EXPECT_NE(started.pid, getpid());
  EXPECT_EQ(kill(started.pid, 0), 0);
}

// More commands than the ring has room for, with copies that the worker makes and others that it
// cannot.
TEST_F(WorkerDevices, MoreCommandsThanTheRingTakes) {
  Device& device = Open();
  const auto host = OpenHost({.index = 3});
  const BufferView word = Word(device), other = Word(device), far = HostBuffer(*host, "12345678");
  Command launch;
  launch.launch = Launch::Of(*device.Load(Image(kNext, "next")));
  launch.launch.arguments = {{0, 0}};
  std::vector<Command> commands(10'000, launch);
  commands[5000] = CopyCommand({{1, 0}, {0, 0}, 8});
  commands[7000] = CopyCommand({{2, 0}, {0, 0}, 8});
  const auto list = device.Encode(commands);
  ASSERT_TRUE(list.ok()) << list.status();
  const auto trace = std::make_shared<RunTrace>();
  const auto point = device.queue().Submit(*list, {word, other, far}, {}, trace);
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_EQ(point->Wait(), absl::OkStatus());
  EXPECT_EQ(Value(word), 9998);
  EXPECT_EQ(Value(other), 5000);
  EXPECT_EQ(Value(far), 6999);
  const auto events = trace->events();
  ASSERT_EQ(events.size(), commands.size());
  for (size_t i = 1; i < events.size(); ++i) ASSERT_LE(events[i - 1].end_ns, events[i].begin_ns);
}

TEST_F(WorkerDevices, AKilledWorkerCostsWhatItRan) {
  Device& device = Open();
  const BufferView word = Word(device), kept = Word(device);
  Value(kept) = 7;
  const auto endless = Commands(device, Image(kEndless, "endless"));
  const auto next = Commands(device, Image(kNext, "next"));
  const auto point = device.queue().Submit(endless, {word}, {});
  ASSERT_TRUE(point.ok());
  AwaitChange(word);
  const pid_t first = Event(0).pid;
  kill(first, SIGKILL);
  const absl::Status status = point->Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(StrCat("CPU:0's worker (process ", first, ")")),
                    HasSubstr("signal 9"), HasSubstr("it was running endless")));
  const WorkerEvent second = Event(1);
  EXPECT_NE(second.pid, first);
  EXPECT_THAT(second.ended, HasSubstr("signal 9"));
  // What was encoded for the first runs on the second, on the bytes that were there.
  EXPECT_EQ(Run(device, next, kept), absl::OkStatus());
  EXPECT_EQ(Value(kept), 8);
  EXPECT_EQ(device.Health(), absl::OkStatus());
}

TEST_F(WorkerDevices, AFaultIsNamed) {
  if (kThreadSanitizer)
    GTEST_SKIP() << "ThreadSanitizer's runtime ends the worker before the signal does";
  Device& device = Open();
  const BufferView word = Word(device);
  const absl::Status status = Run(device, Commands(device, Image(kFault, "fault")), word);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  // AddressSanitizer's runtime reports the fault itself.
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(kAddressSanitizer ? "AddressSanitizer: SEGV" : "Segmentation fault"),
                    HasSubstr("it was running fault")));
  EXPECT_GT(Event(1).pid, 0);
  EXPECT_EQ(Run(device, Commands(device, Image(kNext, "next")), word), absl::OkStatus());
}

TEST_F(WorkerDevices, OneThatHangsIsReplaced) {
  Device& device = Open({.hang_limit = absl::Milliseconds(300)});
  const BufferView word = Word(device);
  const auto next = Commands(device, Image(kNext, "next"));
  kill(Event(0).pid, SIGSTOP);
  const absl::Status status = Run(device, next, word);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has not answered for 300ms and was killed"));
  EXPECT_GT(Event(1).pid, 0);
  EXPECT_EQ(Run(device, next, word), absl::OkStatus());
  EXPECT_EQ(Value(word), 1);
}

// A kernel that is made to leave costs nothing but itself.
TEST_F(WorkerDevices, ACancelledLaunchEndsAndTheWorkerStays) {
  if (!kCanInterruptKernels) GTEST_SKIP() << "ThreadSanitizer delays the signal";
  Device& device = Open();
  const BufferView word = Word(device);
  const auto endless = Commands(device, Image(kEndless, "endless"));
  const auto wish = std::make_shared<Cancellation>();
  const auto point = device.queue().Submit(endless, {word}, {}, nullptr, wish);
  ASSERT_TRUE(point.ok());
  AwaitChange(word);
  wish->Cancel();
  EXPECT_EQ(point->Wait().code(), absl::StatusCode::kCancelled);
  Value(word) = 1;
  EXPECT_EQ(Run(device, Commands(device, Image(kNext, "next")), word), absl::OkStatus());
  EXPECT_EQ(Value(word), 2);
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(WorkerDevices, ALaunchThatTakesTooLongEnds) {
  if (!kCanInterruptKernels) GTEST_SKIP() << "ThreadSanitizer delays the signal";
  WorkerDeviceOptions options;
  options.cpu.launch_limit = absl::Milliseconds(50);
  Device& device = Open(options);
  const absl::Status status =
      Run(device, Commands(device, Image(kEndless, "endless")), Word(device));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--launch-time"));
  const std::lock_guard lock(mutex_);
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(WorkerDevices, WhatIsNoProgramIsRefused) {
  Device& device = Open();
  EXPECT_EQ(device.Load({"p", "not an object"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(device.Load({"p", ""}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto host = OpenHost({.index = 3});
  const BufferView elsewhere = HostBuffer(*host, "12345678");
  EXPECT_EQ(Run(device, Commands(device, Image(kNext, "next")), elsewhere).code(),
            absl::StatusCode::kInvalidArgument)
      << "the worker does not have that memory";
}

TEST_F(WorkerDevices, AProgramThatIsMissingSaysSo) {
  const auto device = OpenWorkerDevice({.executable = "/nonexistent/worker"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("/nonexistent/worker"));
}

// A tenant is not told where programs are on the server.
TEST_F(WorkerDevices, WhyNoneStartsIsForTheOperator) {
  const TemporaryDirectory folder;
  const std::string program = folder.path() / "worker";
  Device& device = Open({.by_tenant = true, .executable = program});
  const auto alice = device.ForTenant("alice");
  for (const absl::Status& status : {alice->Load(Image(kNext, "next")).status(), alice->Health()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("cannot start CPU:0's worker of tenant alice"),
                      HasSubstr("ask its operator"), Not(HasSubstr(folder.path().string()))));
  }
  EXPECT_THAT(Event(0).ended, AllOf(HasSubstr(program), HasSubstr("No such file")));
}

// Each end of one that has worked is followed by a start, with no pause before it, however many
// there were.
TEST_F(WorkerDevices, TheNextOneIsStartedWithoutAPause) {
  Device& device = Open();
  const BufferView word = Word(device);
  const auto next = Commands(device, Image(kNext, "next"));
  constexpr int kEnds = 12;
  for (int i = 0; i < kEnds; ++i) {
    const WorkerEvent started = Event(static_cast<size_t>(i));
    ASSERT_GT(started.pid, 0) << started.ended;
    EXPECT_EQ(started.pause, absl::ZeroDuration());
    ASSERT_EQ(Run(device, next, word), absl::OkStatus());
    kill(started.pid, SIGKILL);
  }
  const WorkerEvent last = Event(kEnds);
  EXPECT_GT(last.pid, 0) << last.ended;
  EXPECT_EQ(last.pause, absl::ZeroDuration());
  EXPECT_EQ(device.generation(), kEnds + 1u);
  EXPECT_EQ(Run(device, next, word), absl::OkStatus());
  EXPECT_EQ(Value(word), kEnds + 1);
}

// One that is started and ends at once, again and again, is started after growing pauses, and the
// device's health says so meanwhile. One that works ends that.
TEST_F(WorkerDevices, PausesGrowWhereEachEndsAtOnce) {
  Device& device = Open({.short_life = absl::Hours(1)});
  const BufferView word = Word(device);
  const auto next = Commands(device, Image(kNext, "next"));
  absl::Duration expected;
  size_t event = 0;
  for (; event < 7; ++event) {
    const WorkerEvent started = Event(event);
    ASSERT_GT(started.pid, 0) << started.ended;
    EXPECT_EQ(started.pause, expected) << event;
    if (event > 0) expected = std::clamp(2 * expected, absl::Milliseconds(50), absl::Seconds(1));
    if (event > 2) {
      EXPECT_THAT(started.ended, HasSubstr(StrCat("; ", event, " in a row have ended soon after")));
    }
    kill(started.pid, SIGKILL);
  }
  EXPECT_EQ(expected, absl::Seconds(1));
  // Until the next one is there, the device says why it is not.
  const auto has_come = [&] {
    const std::lock_guard lock(mutex_);
    return events_.size() > event;
  };
  std::string told;
  while (told.find("in a row") == std::string::npos && !has_come()) {
    const absl::Status health = device.Health();
    told = std::string(health.message());
    if (!health.ok()) EXPECT_TRUE(IsDeviceLost(health)) << health;
  }
  if (!has_come()) {
    EXPECT_THAT(told, AllOf(HasSubstr("was ended by signal 9"), HasSubstr("7 in a row"),
                            HasSubstr("after a pause of up to a second")));
  }
  const WorkerEvent started = Event(event++);
  EXPECT_EQ(started.pause, expected);
  EXPECT_THAT(started.ended, HasSubstr("; 7 in a row"));
  ASSERT_EQ(Run(device, next, word), absl::OkStatus());
  kill(started.pid, SIGKILL);
  EXPECT_EQ(Event(event).pause, absl::ZeroDuration());
}

// One that cannot be started is tried again after pauses that grow to a second, so that two seconds
// are enough for another try and a start. When there is one, they begin anew.
TEST_F(WorkerDevices, PausesBetweenTriesStayBelowASecond) {
  const TemporaryDirectory folder;
  const std::filesystem::path program = folder.path() / "worker";
  std::filesystem::create_symlink(DEVICE_WORKER, program);
  Open({.executable = program, .short_life = absl::ZeroDuration()});
  size_t event = 0;
  for (int round = 0; round < 2; ++round) {
    const pid_t pid = Event(event++).pid;
    ASSERT_GT(pid, 0);
    std::filesystem::remove(program);
    kill(pid, SIGKILL);
    const int tries = round == 0 ? 7 : 1;
    absl::Duration expected = absl::Milliseconds(50), all;
    for (int i = 0; i < tries; ++i) {
      const WorkerEvent failed = Event(event++);
      EXPECT_EQ(failed.pid, 0);
      EXPECT_EQ(failed.pause, expected);
      all += failed.pause;
      expected = std::min(2 * expected, absl::Seconds(1));
    }
    std::filesystem::create_symlink(DEVICE_WORKER, program);
    while (Event(event).pid == 0) all += Event(event++).pause;
    EXPECT_EQ(Event(event).pause, all);
  }
}

// On a machine that is busy with other things a start takes longer than the patience with it. This
// one says nothing before the limit was looked at, and the process is said to have waited for a
// processor until then.
TEST(DeviceWorkerStart, OneThatGetsNoProcessorIsWaitedFor) {
  const TemporaryDirectory folder;
  const std::string late = folder.path() / "late", fifo = folder.path() / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(late) << "#!/bin/sh\nread line < " << fifo << "\nexec " << DEVICE_WORKER << "\n";
  ASSERT_EQ(chmod(late.c_str(), 0700), 0);
  const auto memory = CreateSharedFile("memory", 1 << 20);
  ASSERT_TRUE(memory.ok()) << memory.status();
  DeviceWorker::Options options{.executable = late,
                                .whose = "the worker",
                                .memory = memory->get(),
                                .setup = {.threads = 1, .memory_bytes = 1 << 20},
                                .patience = std::chrono::milliseconds(200)};
  int asked = 0;
  options.patience_source.use = [&](pid_t) {
    if (++asked == 2) std::ofstream(fifo) << "begin\n";  // 1 is before the wait
    return ProcessorUse{.runnable = true};
  };
  options.patience_source.now = [] { return std::chrono::nanoseconds(0); };
  const auto worker = DeviceWorker::Start(options);
  ASSERT_TRUE(worker.ok()) << worker.status();
  EXPECT_GE(asked, 2);
}

// The memory files that a process has mapped, by inode.
std::set<std::string> MemoriesOf(pid_t pid) {
  std::set<std::string> out;
  std::ifstream maps(StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("telegrad-memory") == std::string::npos) continue;
    std::istringstream words(line);
    std::string addresses, mode, offset, device, inode;
    words >> addresses >> mode >> offset >> device >> inode;
    out.insert(inode);
  }
  return out;
}

TEST_F(WorkerDevices, TenantsHaveProcessesAndMemoryOfTheirOwn) {
  Device& device = Open({.by_tenant = true});
  const auto alice = device.ForTenant("alice"), bob = device.ForTenant("bob");
  EXPECT_EQ(&alice->queue(), &device.queue()) << "one worker computes at a time";
  const ProgramImage image = Image(kNext, "next");
  const BufferView hers = Word(*alice), his = Word(*bob);
  EXPECT_EQ(Run(*alice, Commands(*alice, image), hers), absl::OkStatus());
  EXPECT_EQ(Run(*bob, Commands(*bob, image), his), absl::OkStatus());
  EXPECT_EQ(Run(*bob, Commands(*bob, image), hers).code(), absl::StatusCode::kInvalidArgument);
  const WorkerEvent a = Event(0), b = Event(1);
  EXPECT_EQ(a.worker, "CPU:0's worker of tenant alice");
  EXPECT_EQ(b.worker, "CPU:0's worker of tenant bob");
  const auto memory_a = MemoriesOf(a.pid), memory_b = MemoriesOf(b.pid);
  // Only a user with the capability for it looks into a worker.
  if (std::ifstream(StrCat("/proc/", a.pid, "/maps")).is_open()) {
    EXPECT_EQ(memory_a.size(), 1u);
    EXPECT_EQ(memory_b.size(), 1u);
    EXPECT_NE(memory_a, memory_b);
  }
  // One's fault is nothing to the other.
  EXPECT_EQ(Run(*alice, Commands(*alice, Image(kFault, "fault")), hers).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Run(*bob, Commands(*bob, image), his), absl::OkStatus());
  EXPECT_EQ(kill(b.pid, 0), 0);
  EXPECT_EQ(bob->Health(), absl::OkStatus());
}

// While the supervisor is held up by another worker's start, one that has ended stays at hand with
// a full ring, and whatever is run on it is told so.
TEST_F(WorkerDevices, RunsOnAnEndedWorkerFailUntilTheNextOneIsThere) {
  Device& device = Open({.by_tenant = true});
  const auto alice = device.ForTenant("alice"), bob = device.ForTenant("bob");
  const ProgramImage image = Image(kNext, "next");
  const BufferView hers = Word(*alice), his = Word(*bob);
  const auto her_run = Commands(*alice, image);
  const auto his_run = Commands(*bob, image, /*times=*/10'000);  // more than a ring takes
  ASSERT_EQ(Run(*alice, her_run, hers), absl::OkStatus());
  ASSERT_EQ(Run(*bob, his_run, his), absl::OkStatus());
  const WorkerEvent a = Event(0), b = Event(1);
  {
    const std::lock_guard hold(mutex_);  // whoever tells of hers waits here
    kill(a.pid, SIGKILL);
    while (alice->generation() == 1) std::this_thread::yield();
    kill(b.pid, SIGKILL);
    for (int i = 0; i < 5; ++i) {
      const absl::Status status = Run(*bob, his_run, his);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(StrCat("CPU:0's worker of tenant bob (process ", b.pid, ")")));
    }
    EXPECT_EQ(bob->generation(), 1u) << "nobody was held up";
  }
  EXPECT_EQ(Event(3).worker, b.worker);
  EXPECT_EQ(Run(*bob, his_run, his), absl::OkStatus());
}

// A kernel that one tenant has loaded is code, and another's worker may load it, too.
TEST_F(WorkerDevices, ProgramsAreSharedByTenants) {
  Device& device = Open({.by_tenant = true});
  const auto alice = device.ForTenant("alice"), bob = device.ForTenant("bob");
  Command launch;
  launch.launch = Launch::Of(*alice->Load(Image(kNext, "next")));
  launch.launch.arguments = {{0, 0}};
  const BufferView his = Word(*bob);
  EXPECT_EQ(Run(*bob, *bob->Encode({launch}), his), absl::OkStatus());
  EXPECT_EQ(Value(his), 1);
}

TEST_F(WorkerDevices, TenantsShareTheLimitAndGiveBack) {
  Device& device = Open({.by_tenant = true});
  const auto alice = device.ForTenant("alice"), bob = device.ForTenant("bob");
  constexpr int64_t kMost = int64_t{48} << 20;
  BufferView hers = Whole(*alice->Alloc(kMost));
  std::memset(hers.memory->host(), 1, kMost);
  EXPECT_EQ(bob->Alloc(kMost).status().code(), absl::StatusCode::kResourceExhausted);
  hers = {};
  EXPECT_EQ(device.memory_used(), 0);
  const BufferView his = Whole(*bob->Alloc(kMost));
  std::memset(his.memory->host(), 1, kMost);
  EXPECT_LE(device.memory_footprint(), device.memory_limit()) << "what alice freed went back";
}

// Whatever was submitted either ran once and is said to have, or is said to have failed.
TEST_F(WorkerDevices, KilledUnderLoadNothingRunsTwice) {
  Device& device = Open();
  const auto next = Commands(device, Image(kNext, "next"), 3);
  const BufferView word = Word(device);
  std::atomic<bool> stop{false};
  std::atomic<pid_t> victim{Event(0).pid};
  constexpr int kDeaths = 10;
  std::thread killer([&] {
    for (size_t n = 1; n <= kDeaths; ++n) {
      const int64_t before = std::atomic_ref<int64_t>(Value(word)).load();
      while (std::atomic_ref<int64_t>(Value(word)).load() < before + 30) std::this_thread::yield();
      kill(victim, SIGKILL);
      victim = Event(n).pid;
    }
    stop = true;
  });
  int64_t ran = 0, failed = 0;
  std::vector<TimelinePoint> open;
  const auto settle = [&] {
    for (const TimelinePoint& point : open) {
      const absl::Status status = point.Wait();
      ++(status.ok() ? ran : failed);
      EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
    }
    open.clear();
  };
  while (!stop) {
    for (int i = 0; i < 16; ++i) {
      const auto point = device.queue().Submit(next, {word}, {});
      ASSERT_TRUE(point.ok()) << point.status();
      open.push_back(*point);
    }
    settle();
  }
  killer.join();
  EXPECT_GE(Value(word), 3 * ran);
  EXPECT_LE(Value(word), 3 * ran + 3 * failed);
  // Of each death at most what was under way ran in part; the rest did not.
  EXPECT_LE(Value(word), 3 * ran + 3 * kDeaths);
  EXPECT_EQ(Run(device, next, word), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
