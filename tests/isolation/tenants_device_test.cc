// A GPU's driver in a process for each tenant: what is apart, what is shared, and whom the end of a
// process concerns.
#include "devices/hosted/tenants_device.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "devices/api/preparing_queue.h"
#include "devices/hosted/hosted_opening.h"
#include "devices/hosted/tenant_slot.h"
#include "devices/hosted/worker_places.h"
#include "engine/base/device_lost.h"
#include "tests/devices/cuda_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kMiB = 1 << 20;

// The files of memory that a process shares with the daemon, by inode.
std::set<std::string> SharedWith(pid_t pid) {
  std::set<std::string> out;
  std::ifstream maps(StrCat("/proc/", pid, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:telegrad-") == std::string::npos) continue;
    std::istringstream words(line);
    std::string addresses, mode, offset, device, inode;
    words >> addresses >> mode >> offset >> device >> inode;
    out.insert(inode);
  }
  return out;
}

// Only a user with the capability for it looks into a worker.
bool CanLookInto(pid_t pid) { return std::ifstream(StrCat("/proc/", pid, "/environ")).is_open(); }

class TenantDevices : public ::testing::Test {
 protected:
  static HostedOptions Fake(std::vector<std::string> knobs = {}) {
    return {.executable = DEVICE_WORKER,
            .prefix = "CUDA",
            .setup = {.driver = "cuda",
                      .library = TELEGRAD_FAKE_CUDA,
                      .devices = 1,
                      .memory_limit = 64 * kMiB},
            .by_tenant = true,
            .environment = std::move(knobs)};
  }
  void Open(HostedOptions options) {
    options.on_event = [this](const WorkerEvent& event) {
      const MutexLock lock(mutex_);
      events_.push_back(event);
      told_.notify_all();
    };
    std::vector<std::string> notes;
    auto devices = OpenHosted(options, &notes);
    EXPECT_THAT(notes, IsEmpty());
    ASSERT_EQ(devices.size(), 1u);
    device_ = std::move(devices[0]);
    alice_ = device_->ForTenant("alice");
    bob_ = device_->ForTenant("bob");
  }
  WorkerEvent Event(size_t n) {
    ReleasableLock lock(mutex_);
    while (events_.size() <= n) told_.wait(lock);
    return events_[n];
  }
  size_t Events() {
    const MutexLock lock(mutex_);
    return events_.size();
  }
  static std::shared_ptr<const CommandBuffer> Next(Device& device) {
    auto program = device.Load(NextImage());
    EXPECT_TRUE(program.ok()) << program.status();
    auto encoded = device.Encode({NextCommand(*program)});
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    return *encoded;
  }
  static BufferView Buffer(Device& device, int64_t bytes = 8) {
    const auto memory = device.Alloc(bytes);
    EXPECT_TRUE(memory.ok()) << memory.status();
    return Whole(*memory);
  }
  static TimelinePoint Submit(Device& device, const std::shared_ptr<const CommandBuffer>& commands,
                              const BufferView& buffer,
                              const std::shared_ptr<RunTrace>& trace = nullptr) {
    const auto point = device.queue().Submit(commands, {buffer}, {}, trace);
    EXPECT_TRUE(point.ok()) << point.status();
    return point.ok() ? *point : TimelinePoint{};
  }
  int Value(Device& device, const BufferView& view) {
    const BufferView out = HostBuffer(*host_, "?");
    const auto copied = Copy(device, out, {view.memory, 0, 1});
    EXPECT_EQ(copied.ok() ? copied->Wait() : copied.status(), absl::OkStatus());
    return static_cast<unsigned char>(Bytes(out)[0]);
  }
  static void AwaitGeneration(const Device& device, uint64_t generation) {
    while (device.generation() < generation || !device.Health().ok()) std::this_thread::yield();
  }
  static void AwaitEnd(pid_t pid) {
    while (kill(pid, 0) == 0) std::this_thread::yield();
  }

  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  Mutex mutex_;
  ConditionVariable told_;
  std::vector<WorkerEvent> events_ TG_GUARDED_BY(mutex_);
  std::unique_ptr<Device> device_;
  std::shared_ptr<Device> alice_, bob_;
};

TEST_F(TenantDevices, HaveProcessesAndMemoryOfTheirOwn) {
  Open(Fake());
  EXPECT_EQ(Events(), 0u) << "none is started before its tenant uses the device";
  EXPECT_EQ(&alice_->queue(), &device_->queue());
  EXPECT_EQ(alice_->name(), "CUDA:0");
  const auto her_next = Next(*alice_);
  ASSERT_EQ(Events(), 1u);
  const auto his_next = Next(*bob_);
  ASSERT_EQ(Events(), 2u);
  const WorkerEvent a = Event(0), b = Event(1);
  EXPECT_EQ(a.worker, "CUDA:0's worker of tenant alice");
  EXPECT_EQ(b.worker, "CUDA:0's worker of tenant bob");
  EXPECT_NE(a.pid, b.pid);
  const auto hers_shared = SharedWith(a.pid), his_shared = SharedWith(b.pid);
  const size_t files = CanLookInto(a.pid) ? 2 : 0;
  EXPECT_EQ(hers_shared.size(), files);
  EXPECT_EQ(his_shared.size(), files);
  for (const std::string& file : hers_shared) EXPECT_EQ(his_shared.count(file), 0u);

  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  EXPECT_EQ(device_->memory_used(), 16);
  ASSERT_EQ(Submit(*alice_, her_next, hers).Wait(), absl::OkStatus());
  ASSERT_EQ(Submit(*bob_, his_next, his).Wait(), absl::OkStatus());
  ASSERT_EQ(Submit(*bob_, his_next, his).Wait(), absl::OkStatus());
  EXPECT_EQ(Value(*alice_, hers), 1);
  EXPECT_EQ(Value(*bob_, his), 2);
  for (const QueueKind kind : {QueueKind::kCompute, QueueKind::kCopy}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto copy = bob_->Encode({CopyCommand({.to = {0, 0}, .from = {1, 0}, .length = 8})});
    EXPECT_EQ(bob_->queue(kind).Submit(*copy, {his, hers}, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(bob_->queue().Submit(his_next, {hers}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(NeedsHost(*alice_, *bob_));
}

// What one tenant's driver has compiled, another's neither finds nor can have changed.
TEST_F(TenantDevices, HaveCachesOfTheirOwn) {
  Open(Fake());
  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  if (!CanLookInto(Event(0).pid)) GTEST_SKIP() << "this user cannot look into a worker";
  const auto caches = [](pid_t process) {
    std::ifstream file(StrCat("/proc/", process, "/environ"));
    std::set<std::string> out;
    for (std::string entry; std::getline(file, entry, '\0');) {
      const size_t at = entry.find('=') + 1;
      if (entry.find("CACHE") < at || entry.starts_with("TMPDIR=")) out.insert(entry.substr(at));
    }
    return out;
  };
  const auto her_folders = caches(Event(0).pid), his_folders = caches(Event(1).pid);
  EXPECT_EQ(her_folders.size(), 1u) << "that of its temporary files";
  EXPECT_EQ(his_folders.size(), 1u);
  EXPECT_NE(her_folders, his_folders);
}

// A kernel that one tenant has loaded is code, and another's process may load it, too.
TEST_F(TenantDevices, ShareProgramsAndNotCommands) {
  Open(Fake());
  const auto program = alice_->Load(NextImage());
  ASSERT_TRUE(program.ok()) << program.status();
  const auto commands = bob_->Encode({NextCommand(*program)});
  ASSERT_TRUE(commands.ok()) << commands.status();
  const BufferView his = Buffer(*bob_);
  EXPECT_EQ(Submit(*bob_, *commands, his).Wait(), absl::OkStatus());
  EXPECT_EQ(Value(*bob_, his), 1);
  std::vector<std::string> notes;
  const auto others = OpenHosted(Fake(), &notes);
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0]->queue().Submit(*commands, {his}, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(others[0]->Encode({NextCommand(*program)}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// One tenant's process is killed again and again while both count: the errors are hers, name her
// process, and nothing of his is lost or counted twice.
TEST_F(TenantDevices, NoticeNothingOfEachOthersDeaths) {
  Open(Fake());
  const auto his_next = Next(*bob_);
  const pid_t his_process = Event(0).pid;
  const BufferView his = Buffer(*bob_);
  std::atomic<bool> stop{false};
  std::atomic<int> counted{0};
  std::thread bob([&] {
    std::vector<TimelinePoint> points;
    while (!stop.load()) {
      points.clear();
      for (int i = 0; i < 8; ++i) points.push_back(Submit(*bob_, his_next, his));
      for (const TimelinePoint& point : points) {
        const absl::Status status = point.Wait(absl::Seconds(60));
        EXPECT_EQ(status, absl::OkStatus());
        if (!status.ok()) return;
        ++counted;
      }
    }
  });
  const auto her_next = Next(*alice_);
  for (uint64_t life = 1; life <= 5; ++life) {
    const pid_t process = Event(life).pid;
    const BufferView hers = Buffer(*alice_);
    const int before = counted.load();
    ASSERT_EQ(Submit(*alice_, her_next, hers).Wait(), absl::OkStatus());
    std::vector<TimelinePoint> points;
    absl::Status status;
    for (int i = 0; status.ok(); ++i) {
      if (i == 20) kill(process, SIGKILL);
      const auto point = alice_->queue().Submit(her_next, {hers}, {});
      status = point.ok() ? point->Wait(absl::Seconds(60)) : point.status();
    }
    EXPECT_TRUE(IsDeviceLost(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(StrCat("CUDA:0's worker of tenant alice (process ", process, ")")),
                      HasSubstr("was ended by signal 9 (Killed)"),
                      HasSubstr(StrCat("(generation ", life, ")"))));
    AwaitGeneration(*alice_, life + 1);  // by itself
    EXPECT_EQ(Event(life + 1).ended, status.message());
    EXPECT_EQ(device_->Health(), absl::OkStatus());
    while (counted.load() < before + 10) std::this_thread::yield();
  }
  stop = true;
  bob.join();
  EXPECT_EQ(Value(*bob_, his), counted.load() % 256);
  EXPECT_EQ(bob_->generation(), 1u);
  EXPECT_EQ(kill(his_process, 0), 0);
}

// What is behind a process that hangs goes on when that is killed.
TEST_F(TenantDevices, WaitForNoneThatHangs) {
  auto options = Fake({"FAKE_CUDA_HANG_LAUNCH=2"});
  options.hang_limit = absl::Milliseconds(200);
  Open(options);
  const auto her_next = Next(*alice_), his_next = Next(*bob_);
  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  ASSERT_EQ(Submit(*alice_, her_next, hers).Wait(), absl::OkStatus());
  const TimelinePoint hung = Submit(*alice_, her_next, hers);
  kill(Event(0).pid, SIGSTOP);
  const TimelinePoint behind = Submit(*bob_, his_next, his);
  EXPECT_THAT(std::string(hung.Wait(absl::Seconds(60)).message()),
              AllOf(HasSubstr("tenant alice"), HasSubstr("has not answered for 200ms")));
  EXPECT_EQ(behind.Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(Value(*bob_, his), 1);
  AwaitGeneration(*alice_, 2);
}

TEST_F(TenantDevices, AFaultIsItsTenantsAlone) {
  Open(Fake({"FAKE_CUDA_FAULT_LAUNCH=3"}));
  const auto her_next = Next(*alice_), his_next = Next(*bob_);
  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Submit(*alice_, her_next, hers).Wait(), absl::OkStatus());
  }
  ASSERT_EQ(Submit(*bob_, his_next, his).Wait(), absl::OkStatus());
  const TimelinePoint faulty = Submit(*alice_, her_next, hers);
  const TimelinePoint behind = Submit(*bob_, his_next, his);
  EXPECT_THAT(std::string(faulty.Wait(absl::Seconds(60)).message()),
              AllOf(HasSubstr("tenant alice"), HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
  EXPECT_EQ(behind.Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(Value(*bob_, his), 2);
}

// The fair queue's measure of a slice is the time from the end of the one before it.
TEST_F(TenantDevices, ComputeOneAtATime) {
  Open(Fake({"FAKE_CUDA_DELAY_US=200"}));
  struct Ran {
    int64_t begin, end;
    bool hers;
  };
  std::vector<Ran> all;
  const auto her_next = Next(*alice_), his_next = Next(*bob_);
  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  std::vector<std::pair<std::shared_ptr<RunTrace>, bool>> traces;
  TimelinePoint last;
  for (int i = 0; i < 60; ++i) {
    const bool is_hers = i % 5 < 2;
    traces.emplace_back(std::make_shared<RunTrace>(), is_hers);
    last = is_hers ? Submit(*alice_, her_next, hers, traces.back().first)
                   : Submit(*bob_, his_next, his, traces.back().first);
  }
  ASSERT_EQ(last.Wait(absl::Seconds(60)), absl::OkStatus());
  for (const auto& [trace, is_hers] : traces) {
    for (const TraceEvent& event : trace->events()) {
      all.push_back({event.begin_ns, event.end_ns, is_hers});
    }
  }
  ASSERT_EQ(all.size(), 60u);
  std::ranges::sort(all, {}, &Ran::begin);
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].hers != all[i - 1].hers) EXPECT_LE(all[i - 1].end, all[i].begin) << i;
  }
}

TEST_F(TenantDevices, ShareTheLimitOfMemory) {
  Open(Fake({"FAKE_CUDA_VIRTUAL_MEMORY=1"}));
  BufferView hers = Buffer(*alice_, 48 * kMiB);
  EXPECT_EQ(bob_->Alloc(48 * kMiB).status().code(), absl::StatusCode::kResourceExhausted);
  BufferView his = Buffer(*bob_, 16 * kMiB);
  EXPECT_EQ(device_->memory_used(), 64 * kMiB);
  EXPECT_EQ(bob_->memory_limit(), 64 * kMiB);
  hers = {};
  EXPECT_EQ(device_->memory_used(), 16 * kMiB);
  const BufferView more = Buffer(*bob_, 48 * kMiB);
  EXPECT_LE(device_->memory_footprint(), device_->memory_limit()) << "what alice freed went back";
}

// A buffer of a process that has ended holds nothing.
TEST_F(TenantDevices, WhatWasLostDoesNotCount) {
  Open(Fake());
  const BufferView hers = Buffer(*alice_, 48 * kMiB);
  kill(Event(0).pid, SIGKILL);
  AwaitGeneration(*alice_, 2);
  EXPECT_EQ(device_->memory_used(), 0);
  EXPECT_TRUE(IsDeviceLost(hers.memory->Health()));
  BufferView again = Buffer(*alice_, 40 * kMiB);
  EXPECT_EQ(device_->memory_used(), 40 * kMiB);
  again = {};
  EXPECT_EQ(device_->memory_used(), 0);
}

// A tenant that has nothing there and does nothing has no process; what it has compiled goes on in
// the next.
TEST_F(TenantDevices, AnIdleProcessEnds) {
  Open(Fake({"FAKE_CUDA_VIRTUAL_MEMORY=1"}));
  const auto her_next = Next(*alice_);
  BufferView hers = Buffer(*alice_);
  ASSERT_EQ(Submit(*alice_, her_next, hers).Wait(), absl::OkStatus());
  const pid_t process = Event(0).pid;
  const auto look = [&] {
    const auto bytes = device_->idle_memory()->GiveBack();
    EXPECT_TRUE(bytes.ok()) << bytes.status();
  };
  for (int i = 0; i < 3; ++i) look();
  EXPECT_EQ(kill(process, 0), 0) << "it has memory";
  EXPECT_EQ(Value(*alice_, hers), 1);
  hers = {};
  look();
  EXPECT_EQ(kill(process, 0), 0) << "it has just been used";
  while (kill(process, 0) == 0) look();  // one look later, unless it was at work
  EXPECT_EQ(device_->memory_footprint(), 0);
  EXPECT_EQ(alice_->Health(), absl::OkStatus());
  hers = Buffer(*alice_);
  const WorkerEvent second = Event(1);
  EXPECT_EQ(second.ended, "");
  ASSERT_EQ(Submit(*alice_, her_next, hers).Wait(), absl::OkStatus());
  EXPECT_EQ(Value(*alice_, hers), 1);
  EXPECT_EQ(alice_->generation(), 2u);
}

// Whoever is always at work keeps only its own process.
TEST_F(TenantDevices, AnIdleProcessEndsWhileAnotherIsAtWork) {
  Open(Fake({"FAKE_CUDA_VIRTUAL_MEMORY=1", "FAKE_CUDA_HANG_LAUNCH=2"}));
  const auto her_next = Next(*alice_), his_next = Next(*bob_);
  const BufferView hers = Buffer(*alice_);
  const pid_t her_process = Event(0).pid, his_process = Event(1).pid;
  ASSERT_EQ(Submit(*alice_, her_next, hers).Wait(), absl::OkStatus());
  const TimelinePoint hung = Submit(*alice_, her_next, hers);
  BufferView freed = Buffer(*alice_, 8 * kMiB);  // to be given back, which is put off
  freed = {};
  const auto idle = device_->idle_memory();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(idle->GiveBack().status(), absl::OkStatus());
  EXPECT_NE(kill(his_process, 0), 0);
  EXPECT_EQ(kill(her_process, 0), 0);
  EXPECT_LT(hung.timeline->value(), hung.value);
  kill(her_process, SIGKILL);
  EXPECT_TRUE(IsDeviceLost(hung.Wait(absl::Seconds(60))));
}

// One more than the limit ends one that does nothing and has nothing, and is refused where there is
// none.
TEST_F(TenantDevices, AreNoMoreAtATimeThanTheLimit) {
  auto options = Fake();
  options.most_workers = 2;
  Open(options);
  const auto carol = device_->ForTenant("carol"), dave = device_->ForTenant("dave");
  const auto his_next = Next(*bob_);  // he has programs, and no memory
  BufferView hers = Buffer(*alice_);
  const pid_t his_process = Event(0).pid, her_process = Event(1).pid;
  BufferView carols = Buffer(*carol);
  AwaitEnd(his_process);
  EXPECT_EQ(kill(her_process, 0), 0) << "she has memory";
  for (const absl::Status& refused :
       {bob_->Alloc(8).status(), dave->Load(NextImage()).status(), dave->Alloc(8).status()}) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("CUDA:0: other tenants use all 2 worker processes"),
                      HasSubstr("try again"), HasSubstr("--gpu-workers"), Not(HasSubstr("carol"))));
  }
  EXPECT_EQ(Events(), 3u);
  EXPECT_EQ(device_->memory_used(), 16);
  // The one that was used before the other goes.
  carols = {};
  hers = {};
  const BufferView hers_again = Buffer(*alice_), his = Buffer(*bob_);
  AwaitEnd(Event(2).pid);
  EXPECT_EQ(kill(her_process, 0), 0);
  ASSERT_EQ(Submit(*bob_, his_next, his).Wait(), absl::OkStatus());
  EXPECT_EQ(Value(*bob_, his), 1);
  // A process that is replaced keeps its place.
  kill(her_process, SIGKILL);
  AwaitGeneration(*alice_, 2);
  const BufferView hers_now = Buffer(*alice_);
  EXPECT_EQ(dave->Alloc(8).status().code(), absl::StatusCode::kUnavailable);
}

// The context of a process takes memory until it has ended: its place is nobody's before.
TEST_F(TenantDevices, APlaceIsTakenUntilTheProcessHasEnded) {
  Mutex mutex;
  ConditionVariable told;
  std::vector<pid_t> started;
  std::unique_ptr<TenantRemains> ended;
  HostedOptions options = Fake();
  options.on_event = [&](const WorkerEvent& event) {
    const MutexLock lock(mutex);
    if (!started.empty()) EXPECT_NE(kill(started.back(), 0), 0) << "there are two at a time";
    started.push_back(event.pid);
  };
  HostedOpened said;
  const auto facts = HostedOpening(options, "CUDA:0", 0).Describe(&said, nullptr);
  ASSERT_TRUE(facts.ok()) << facts.status();
  const auto used = std::make_shared<std::atomic<int64_t>>(0);
  // The first finds no time to end.
  for (const absl::Duration patience : {absl::ZeroDuration(), absl::Hours(1)}) {
    const auto places = std::make_shared<WorkerPlaces>(WorkerPlaces::Options{
        .device = "CUDA:0", .most = 1, .memory_limit = kMiB, .used = used, .patience = patience});
    const auto slot = [&](const char* tenant, std::function<bool()> end_one) {
      TenantSlot::Options slot{
          .opening = std::make_shared<HostedOpening>(options, "CUDA:0", 0, tenant),
          .used = used,
          .keeps = nullptr};
      for (const HostedQueueFacts& queue : facts->queues) slot.queues.push_back(queue.takes);
      slot.take = [=](const TenantSlot&) { return places->Take([] {}, end_one); };
      return std::make_unique<TenantSlot>(std::move(slot));
    };
    started.clear();
    const auto alice = slot("alice", [] { return false; });
    const auto bob = slot("bob", [&] {
      const MutexLock lock(mutex);
      ended = alice->EndIfIdle();
      told.notify_all();
      return ended != nullptr;
    });
    ASSERT_EQ(alice->Open().status(), absl::OkStatus());
    if (patience == absl::ZeroDuration()) {
      const absl::Status late = bob->Open().status();
      EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(late.message()), HasSubstr("has not ended for 0"));
      ended = nullptr;
      continue;
    }
    absl::Status his;
    std::thread other([&] { his = bob->Open().status(); });
    {
      ReleasableLock lock(mutex);
      while (ended == nullptr) told.wait(lock);
      EXPECT_EQ(kill(started.back(), 0), 0);
    }
    EXPECT_FALSE(bob->AtHand().has_value());
    std::unique_ptr<TenantRemains> going = std::move(ended);
    EXPECT_NE(going->place, nullptr);
    going = nullptr;
    other.join();
    EXPECT_EQ(his, absl::OkStatus());
  }
}

// All want one at once, whoever has one gives it up soon.
TEST_F(TenantDevices, ShareFewPlaces) {
  auto options = Fake();
  options.most_workers = 2;
  Open(options);
  std::vector<std::thread> threads;
  std::atomic<int> allocated{0};
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, tenant = device_->ForTenant(StrCat("tenant", i))] {
      for (int mine = 0; mine < 4;) {
        const auto memory = tenant->Alloc(8);
        if (memory.ok()) {
          ++mine;
          ++allocated;
        } else {
          EXPECT_EQ(memory.status().code(), absl::StatusCode::kUnavailable) << memory.status();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocated.load(), 24);
  EXPECT_EQ(device_->memory_used(), 0);
}

class HostileTenants : public TenantDevices {
 protected:
  static HostedOptions Evil(const std::string& attack) {
    return {.executable = HOSTILE_DRIVER,
            .prefix = "EVIL",
            .setup = {.driver = "cuda", .library = attack},
            .by_tenant = true,
            .hang_limit = absl::Milliseconds(300)};
  }
};

// It says that it holds all memory that there is, and does not answer who asks for it: others wait
// a short time for it, and it is not ended for that.
TEST_F(HostileTenants, WhatTheyHoldIsWhatTheyCan) {
  Open(Evil("keeps_memory"));
  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  EXPECT_EQ(device_->memory_used(), 16);
  EXPECT_EQ(device_->memory_limit(), kMiB);
  EXPECT_EQ(device_->memory_footprint(), 2 * kMiB);
  const BufferView more = Buffer(*bob_), even_more = Buffer(*bob_);
  EXPECT_EQ(bob_->Alloc(kMiB).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->memory_used(), 32);
  EXPECT_EQ(alice_->generation(), 1u);
  EXPECT_EQ(alice_->Health(), absl::OkStatus());
}

// Each ends as soon as it has opened the device: it is brought back, however early it was.
TEST_F(HostileTenants, WhoLeavesAtOnceIsBroughtBack) {
  Open(Evil("leaves"));
  for (int i = 0; i < 10; ++i) {
    const auto tenant = device_->ForTenant(StrCat("tenant", i));
    while (tenant->generation() < 3) (void)tenant->Alloc(8);
  }
  EXPECT_EQ(device_->memory_used(), 0);
}

// Her next process does not answer who loads her code. Whoever hands out the queue's work is not
// who waits for that, and his work goes on.
TEST_F(HostileTenants, WhoDoesNotLoadHoldsUpNobody) {
  const TemporaryDirectory folder;
  const std::filesystem::path ignores = folder.path() / "ignores";
  Open(Evil(StrCat("ignores_loads:", ignores.string())));
  auto* const queue = dynamic_cast<PreparingQueue*>(&device_->queue());
  ASSERT_NE(queue, nullptr);
  EXPECT_TRUE(AsksProcess(*device_));
  EXPECT_FALSE(AsksProcess(*host_));
  const auto her_next = Next(*alice_), his_next = Next(*bob_);
  const BufferView lost = Buffer(*alice_), his = Buffer(*bob_);
  EXPECT_EQ(queue->Prepare(her_next).timeline, nullptr);
  std::ofstream(ignores) << "now";
  kill(Event(0).pid, SIGKILL);
  AwaitGeneration(*alice_, 2);
  const BufferView hers = Buffer(*alice_);
  // What went with her process is refused at once.
  EXPECT_TRUE(IsDeviceLost(alice_->queue().Submit(her_next, {lost}, {}).status()));
  const TimelinePoint prepared = queue->Prepare(her_next);
  ASSERT_NE(prepared.timeline, nullptr);
  EXPECT_EQ(queue->Prepare(her_next).timeline, prepared.timeline) << "it is asked once";
  EXPECT_EQ(queue->Prepare(his_next).timeline, nullptr);
  EXPECT_EQ(Submit(*bob_, his_next, his).Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(prepared.timeline->value(), 0u);
  std::filesystem::remove(ignores);
  kill(Event(2).pid, SIGKILL);
  EXPECT_TRUE(IsDeviceLost(prepared.Wait(absl::Seconds(60))));
  AwaitGeneration(*alice_, 3);
  const TimelinePoint again = queue->Prepare(her_next);
  ASSERT_NE(again.timeline, nullptr);
  EXPECT_EQ(again.Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(queue->Prepare(her_next).timeline, nullptr);
  EXPECT_EQ(Submit(*alice_, her_next, Buffer(*alice_)).Wait(absl::Seconds(60)), absl::OkStatus());
}

// Her process answers whatever it is asked, and ends none of her runs: so it loses the GPU as soon
// as one takes longer than a slice may, and his run follows.
TEST_F(HostileTenants, WhoEndsNoRunLosesTheProcess) {
  const TemporaryDirectory folder;
  const std::filesystem::path ignores = folder.path() / "ignores";
  auto options = Evil(StrCat("ignores_runs:", ignores.string()));
  options.run_limit = absl::Milliseconds(300);
  Open(options);
  const auto her_next = Next(*alice_), his_next = Next(*bob_);
  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  const pid_t her_process = Event(0).pid;
  std::ofstream(ignores) << "now";
  const TimelinePoint endless = Submit(*alice_, her_next, hers);
  (void)Buffer(*alice_);  // the answer says that it has read the order before
  std::filesystem::remove(ignores);
  const TimelinePoint behind = Submit(*bob_, his_next, his);
  // All the while it answers her.
  while (endless.timeline->value() < endless.value) (void)alice_->Alloc(8);
  const absl::Status status = endless.Wait();
  EXPECT_TRUE(IsDeviceLost(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(StrCat("tenant alice (process ", her_process, ")")),
                    HasSubstr("has ended nothing of a queue for 300ms and was killed")));
  EXPECT_EQ(behind.Wait(absl::Seconds(60)), absl::OkStatus());
  EXPECT_EQ(bob_->generation(), 1u);
  AwaitGeneration(*alice_, 2);
  EXPECT_EQ(Submit(*alice_, her_next, Buffer(*alice_)).Wait(absl::Seconds(60)), absl::OkStatus());
}

// A process takes of the device's memory for its context, by the difference that a second one
// makes.
TEST_F(HostileTenants, ContextsCountAsMemory) {
  constexpr int64_t kContext = 64 << 10;
  for (const int64_t limit : {int64_t{0}, int64_t{512} << 10}) {
    SCOPED_TRACE(limit);
    const TemporaryDirectory folder;
    auto options = Evil(StrCat("counts:", (folder.path() / "starts").string()));
    options.setup.memory_limit = limit;
    Open(options);
    const int64_t all = limit == 0 ? kMiB - kContext : limit;
    ASSERT_EQ(device_->memory_limit(), all);
    // The limit has room for one.
    BufferView hers = Buffer(*alice_, all - kContext);
    const absl::Status refused = bob_->Alloc(1).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("exceed the memory limit"));
    hers = {};
    hers = Buffer(*alice_, all - 2 * kContext);
    BufferView his = Buffer(*bob_, kContext);
    EXPECT_EQ(device_->memory_used(), all - kContext);
    EXPECT_THAT(std::string(bob_->Alloc(1).status().message()),
                HasSubstr(StrCat("of which ", kContext, " are for the contexts of workers")));
    const auto carol = device_->ForTenant("carol");
    EXPECT_THAT(std::string(carol->Load(NextImage()).status().message()),
                HasSubstr(StrCat("one more worker process takes ", kContext, " bytes")));
    his = {};
    const BufferView carols = Buffer(*carol, kContext);  // in the place of his
    EXPECT_EQ(device_->memory_used(), all - kContext);
    alice_ = bob_ = nullptr;
  }
}

// What ends at once, again and again, is started after growing pauses, and its errors say so.
TEST_F(HostileTenants, WhoLeavesAtOnceAgainAndAgainIsWaitedFor) {
  auto options = Evil("leaves");
  options.short_life = absl::Hours(1);
  Open(options);
  (void)alice_->Alloc(8);
  absl::Duration expected;
  for (size_t life = 0; life < 6; ++life) {
    const WorkerEvent started = Event(life);
    EXPECT_GT(started.pid, 0);
    EXPECT_EQ(started.pause, expected) << life;
    if (life > 0) expected = std::max(2 * expected, absl::Milliseconds(50));
    if (life < 2) continue;
    EXPECT_THAT(started.ended, HasSubstr(StrCat("; ", life, " in a row have ended soon after")));
  }
  absl::Status health;
  while (health.ok()) health = alice_->Health();
  EXPECT_TRUE(IsDeviceLost(health)) << health;
  EXPECT_THAT(std::string(health.message()), HasSubstr("in a row"));
  EXPECT_EQ(bob_->Health(), absl::OkStatus());
}

// The same of one process for all.
TEST(HostileDriver, WhoLeavesAtOnceAgainAndAgainIsWaitedFor) {
  std::vector<WorkerEvent> events;
  HostedOptions options{.executable = HOSTILE_DRIVER,
                        .prefix = "EVIL",
                        .setup = {.driver = "cuda", .library = "leaves"},
                        .short_life = absl::Hours(1)};
  options.on_event = [&](const WorkerEvent& event) { events.push_back(event); };
  const auto devices = OpenHosted(options, nullptr);
  ASSERT_EQ(devices.size(), 1u);
  Device& device = *devices[0];
  for (int64_t life = 1; life < 5; ++life) {
    absl::Status health;
    while (health.ok()) health = device.Health();
    EXPECT_TRUE(IsDeviceLost(health)) << health;
    if (life > 1) {
      EXPECT_THAT(std::string(health.message()), HasSubstr(StrCat("; ", life, " in a row have")));
    }
    ASSERT_EQ(device.Recover(), absl::OkStatus());
  }
  EXPECT_EQ(events[1].pause, absl::ZeroDuration());
  EXPECT_EQ(events[4].pause, absl::Milliseconds(200));
}

// What is closed is closed, also for those who have used it.
TEST_F(TenantDevices, NoneIsStartedAfterTheEnd) {
  Open(Fake());
  const auto her_next = Next(*alice_);
  const BufferView hers = Buffer(*alice_);
  device_ = nullptr;
  EXPECT_EQ(alice_->Alloc(8).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(bob_->Load(NextImage()).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Events(), 1u);
}

TEST_F(TenantDevices, HaveOneSetOfSensors) {
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  const std::string kept = before == nullptr ? "" : before;
  setenv("LD_LIBRARY_PATH", std::filesystem::path(FAKE_NVML).parent_path().c_str(), 1);
  Open(Fake());
  before == nullptr ? unsetenv("LD_LIBRARY_PATH") : setenv("LD_LIBRARY_PATH", kept.c_str(), 1);
  ASSERT_NE(device_->sensors(), nullptr);
  EXPECT_EQ(device_->sensors(), alice_->sensors());
}

// The last that refers to a process may be a submission, whose end its own thread tells.
TEST_F(TenantDevices, EndWithTheLastReference) {
  Open(Fake());
  for (size_t i = 0; i < 10; ++i) {
    auto carol = device_->ForTenant("carol");
    auto next = Next(*carol);
    BufferView hers = Buffer(*carol);
    const pid_t process = Event(i).pid;
    Gate gate;
    const auto point = carol->queue().Submit(next, {hers}, std::vector{gate.point()});
    ASSERT_TRUE(point.ok()) << point.status();
    carol = nullptr;
    next = nullptr;
    EXPECT_EQ(kill(process, 0), 0);
    hers = {};
    gate.Open();
    EXPECT_EQ(point->Wait(absl::Seconds(60)), absl::OkStatus());
    AwaitEnd(process);
  }
  EXPECT_EQ(device_->memory_used(), 0);
}

TEST_F(TenantDevices, MemoryStaysWithoutItsDevice) {
  Open(Fake());
  const BufferView hers = Buffer(*alice_);
  const auto next = Next(*alice_);
  ASSERT_EQ(Submit(*alice_, next, hers).Wait(), absl::OkStatus());
  alice_ = nullptr;
  EXPECT_EQ(hers.memory->Health(), absl::OkStatus());
  ASSERT_EQ(Submit(*device_, next, hers).Wait(), absl::OkStatus());
  EXPECT_EQ(device_->memory_used(), 8);
}

// Her next process hangs in its start, and he, who loses his meanwhile, gets another.
TEST_F(TenantDevices, AreBroughtBackOneWithoutTheOther) {
  const TemporaryDirectory folder;
  const std::filesystem::path program = folder.path() / "worker", slow = folder.path() / "slow",
                              begun = folder.path() / "begun", go_on = folder.path() / "go_on";
  for (const auto& fifo : {begun, go_on}) ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(slow) << "#!/bin/sh\necho begun > " << begun.string() << "\nread line < "
                      << go_on.string() << "\nexec " DEVICE_WORKER " \"$@\"\n";
  std::filesystem::permissions(slow, std::filesystem::perms::owner_all);
  const auto use = [&](const std::filesystem::path& worker) {
    std::filesystem::remove(program);
    std::filesystem::create_symlink(worker, program);
  };
  use(DEVICE_WORKER);
  auto options = Fake();
  options.executable = program;
  Open(options);
  const BufferView hers = Buffer(*alice_), his = Buffer(*bob_);
  use(slow);
  kill(Event(0).pid, SIGKILL);
  std::string line;
  std::getline(std::ifstream(begun), line);  // waits for it
  use(DEVICE_WORKER);
  kill(Event(1).pid, SIGKILL);
  AwaitGeneration(*bob_, 2);
  EXPECT_FALSE(alice_->Health().ok());
  EXPECT_EQ(alice_->generation(), 1u);
  std::ofstream(go_on) << "now\n";
  AwaitGeneration(*alice_, 2);
}

// A tenant is not told where programs are on the server.
TEST_F(TenantDevices, WhyNoneStartsIsForTheOperator) {
  const TemporaryDirectory folder;
  const std::filesystem::path program = folder.path() / "worker";
  std::filesystem::create_symlink(DEVICE_WORKER, program);
  auto options = Fake();
  options.executable = program;
  Open(options);
  std::filesystem::remove(program);
  const absl::Status status = alice_->Alloc(8).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cannot start CUDA:0's worker of tenant alice"),
                    HasSubstr("ask its operator"), Not(HasSubstr(folder.path().string()))));
  EXPECT_THAT(Event(0).ended, AllOf(HasSubstr(program.string()), HasSubstr("No such file")));
  EXPECT_EQ(device_->memory_used(), 0);
  std::filesystem::create_symlink(DEVICE_WORKER, program);
  absl::StatusOr<std::shared_ptr<Memory>> memory = absl::UnknownError("");
  while (!memory.ok()) memory = alice_->Alloc(8);
  EXPECT_EQ(alice_->Health(), absl::OkStatus());
}

}  // namespace
}  // namespace telegrad
