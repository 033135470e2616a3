// A daemon with --isolate: which runs fail when workers are killed, and that no other tenant
// notices.
#include <signal.h>

#include <fstream>
#include <set>

#include "engine/base/device_lost.h"
#include "engine/ir/content_hash.h"
#include "tests/remote/two_daemons.h"
#include "tests/server/auth_fixture.h"
#include "tests/server/device_workers.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A session with four words on which it counts.
class Counter {
 public:
  explicit Counter(Connection& connection, const std::string& device = "CPU:0")
      : session_(*connection.OpenSession()) {
    session_->Alloc(1, 16, device);
    session_->WriteCopy(1, 0, Bytes(std::vector<int32_t>(4)));
    session_->Put(graph_.root());
  }
  Future<RunInfo> Run() {
    const uint64_t handles[] = {1};
    return session_->Run(ContentHash(graph_.root()), handles);
  }
  // What it has counted to; an error where its buffer holds none.
  absl::StatusOr<int32_t> Value() {
    std::vector<int32_t> words(4);
    const auto read = session_->Read(1, 0, Writable(words)).Get();
    if (!read.ok()) return read.status();
    return words[0];
  }
  void Reset() { session_->WriteCopy(1, 0, Bytes(std::vector<int32_t>(4))); }

 private:
  FrozenGraph graph_ = IncrementGraph(4);
  std::unique_ptr<RemoteSession> session_;
};

TEST(IsolatedDaemon, WorkersGiveUpWhatTheyDoNotNeed) {
  RunningDaemon daemon({"--isolate", "device"});
  const auto workers = WorkersOf(daemon.process().pid());
  ASSERT_EQ(workers.size(), 1u);
  const std::string status = ReadAll(StrCat("/proc/", *workers.begin(), "/status"));
  EXPECT_THAT(status, AllOf(HasSubstr("Seccomp:\t2"), HasSubstr("NoNewPrivs:\t1")));
}

TEST(IsolatedDaemon, WorkersEndWithIt) {
  auto daemon = std::make_unique<RunningDaemon>(std::vector<std::string>{"--isolate", "device"});
  const auto workers = WorkersOf(daemon->process().pid());
  ASSERT_EQ(workers.size(), 1u);
  daemon.reset();  // killed
  EXPECT_TRUE(Becomes([&] { return kill(*workers.begin(), 0) != 0; }));
}

TEST(IsolatedDaemon, RunsGoOnAfterAWorkerWasKilled) {
  RunningDaemon daemon({"--isolate", "device"});
  const auto connection = *Connection::Connect(daemon.address());
  Counter counter(*connection);
  ASSERT_TRUE(counter.Run().Get().ok());
  const auto before = WorkersOf(daemon.process().pid());
  kill(*before.begin(), SIGKILL);
  EXPECT_TRUE(Becomes([&] {
    const auto now = WorkersOf(daemon.process().pid());
    return now.size() == 1 && now != before;
  }));
  // The buffer has survived, for nothing was writing it.
  EXPECT_TRUE(Becomes([&] { return counter.Run().Get().ok() || (counter.Reset(), false); }));
  EXPECT_GE((*connection->Stats())["telegrad_device_worker_ends_total"], 1);
}

class IsolatedDriver : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    daemon_ = std::make_unique<RunningDaemon>(std::vector<std::string>{
        "--isolate", GetParam(), "--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1"});
    connection_ = *Connection::Connect(daemon_->address());
  }
  pid_t daemon() { return daemon_->process().pid(); }
  // How errors call it.
  static std::string Whose() {
    return GetParam() == "tenant" ? "CUDA:0's worker of tenant local" : "CUDA:0's worker";
  }
  // The one process that hosts the GPU's driver. Tenants have theirs from their first use on.
  pid_t Driver() {
    std::set<pid_t> all;
    EXPECT_TRUE(Becomes([&] { return (all = DriversOf(daemon())).size() == 1; }));
    return all.empty() ? 0 : *all.begin();
  }
  static bool Maps(pid_t process) {
    return ReadAll(StrCat("/proc/", process, "/maps")).find(TELEGRAD_FAKE_CUDA) !=
           std::string::npos;
  }

  std::unique_ptr<RunningDaemon> daemon_;
  std::shared_ptr<Connection> connection_;
};

TEST_P(IsolatedDriver, IsLoadedInItsWorkerOnly) {
  Counter counter(*connection_, "CUDA:0");
  ASSERT_TRUE(counter.Run().Get().ok());
  const pid_t driver = Driver();
  // Only a user with the capability for it looks into a worker.
  if (std::ifstream(StrCat("/proc/", driver, "/maps")).is_open()) EXPECT_TRUE(Maps(driver));
  EXPECT_FALSE(Maps(daemon()));
  const std::string status = ReadAll(StrCat("/proc/", driver, "/status"));
  EXPECT_THAT(status, AllOf(HasSubstr("Seccomp:\t2"), HasSubstr("NoNewPrivs:\t1")));
  EXPECT_THAT(ReadAll(StrCat("/proc/", driver, "/limits")),
              ::testing::ContainsRegex("Max core file size +0 "));
  EXPECT_EQ(*counter.Value(), 1);
  EXPECT_FALSE(Maps(daemon()));
  std::vector<std::string> notes;
  const auto devices = connection_->ListDevices(&notes);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_EQ(devices->size(), 2u) << "a GPU has one row";
  const auto of_gpu =
      ::testing::Contains(HasSubstr("CUDA:0: each tenant that uses it has a worker"));
  if (GetParam() == "tenant") {
    EXPECT_THAT(notes, of_gpu);
  } else {
    EXPECT_THAT(notes, ::testing::Not(of_gpu));
  }
  daemon_.reset();  // killed
  EXPECT_TRUE(Becomes([&] { return kill(driver, 0) != 0; }));
}

// The error names the process, a new one takes the next run, and nobody else notices.
TEST_P(IsolatedDriver, RunsGoOnAfterItsWorkerHasEnded) {
  Counter bystander(*connection_);
  for (const int death : {SIGKILL, SIGABRT, SIGSTOP}) {
    auto counter = std::make_unique<Counter>(*connection_, "CUDA:0");
    ASSERT_TRUE(counter->Run().Get().ok());
    const pid_t driver = Driver();
    kill(driver, death);
    ASSERT_TRUE(Becomes([&] { return HasEndedOrStopped(driver); }));
    std::vector<Future<RunInfo>> runs, others;
    for (int i = 0; i < 20; ++i) {
      runs.push_back(counter->Run());
      others.push_back(bystander.Run());
    }
    for (const auto& run : runs) {
      const absl::Status status = run.Get().status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(StrCat(Whose(), " (process ", driver, ")")));
    }
    for (const auto& run : others) EXPECT_TRUE(run.Get().ok());
    EXPECT_TRUE(Becomes([&] {
      counter = std::make_unique<Counter>(*connection_, "CUDA:0");
      return counter->Run().Get().ok();
    }));
    EXPECT_EQ(*counter->Value(), 1);
    EXPECT_NE(Driver(), driver);
  }
  EXPECT_EQ(*bystander.Value(), 60);
  EXPECT_GE((*connection_->Stats())["telegrad_device_worker_ends_total"], 3);
}

INSTANTIATE_TEST_SUITE_P(Modes, IsolatedDriver, ::testing::Values("device", "tenant"),
                         [](const auto& info) { return info.param; });

// With its last session a tenant's memory goes, and some time later its worker; its next session
// starts another, which loads what was compiled before.
TEST(IsolatedDaemon, ATenantsWorkerOnAGpuEndsWhenItIsIdle) {
  RunningDaemon daemon({"--isolate", "tenant", "--cuda-library", TELEGRAD_FAKE_CUDA,
                        "--cuda-devices", "1", "--idle-memory", "1"});
  const auto connection = *Connection::Connect(daemon.address());
  std::set<pid_t> before;
  for (int round = 0; round < 2; ++round) {
    auto counter = std::make_unique<Counter>(*connection, "CUDA:0");
    ASSERT_TRUE(counter->Run().Get().ok());
    const std::set<pid_t> now = DriversOf(daemon.process().pid());
    EXPECT_EQ(now.size(), 1u);
    EXPECT_NE(now, before);
    before = now;
    EXPECT_EQ(*counter->Value(), 1);
    counter.reset();
    EXPECT_TRUE(Becomes([&] { return DriversOf(daemon.process().pid()).empty(); }));
  }
  const auto stats = *connection->Stats();
  EXPECT_EQ(stats.at("telegrad_kernels_compiled_total"), 1);
  EXPECT_EQ(stats.at("telegrad_device_worker_ends_total"), 0) << "none was lost";
}

// A launch of some milliseconds on a GPU, which takes the fake longer than a tenant's worker may be
// at it.
TEST(IsolatedDaemon, ATenantsWorkerOnAGpuEndsWhenItIsTooLongAtALaunch) {
  constexpr int64_t kElements = 12 << 20;
  RunningDaemon daemon({"--isolate", "tenant", "--cuda-library", TELEGRAD_FAKE_CUDA,
                        "--cuda-devices", "1", "--launch-time", "10", "--worker-hang-time", "500"});
  const auto connection = *Connection::Connect(daemon.address());
  const auto session = *connection->OpenSession();
  session->Alloc(1, kElements * 4, "CUDA:0");
  const FrozenGraph graph = IncrementGraph(kElements);
  session->Put(graph.root());
  const uint64_t handles[] = {1};
  const absl::Status status = session->Run(ContentHash(graph.root()), handles).Get().status();
  EXPECT_TRUE(IsDeviceLost(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("CUDA:0's worker of tenant local"),
                    HasSubstr("has ended nothing of a queue for 510ms and was killed")));
}

class IsolatedTenants : public AuthTest {
 protected:
  std::unique_ptr<Counter> CounterOf(const std::string& tenant,
                                     const std::string& device = "CPU:0") {
    auto connection = Connect(address_, keys_->WithToken(keys_->Token(tenant)));
    EXPECT_TRUE(connection.ok()) << connection.status();
    connections_.push_back(*connection);
    return std::make_unique<Counter>(**connection, device);
  }
  std::vector<std::shared_ptr<Connection>> connections_;
};

// One tenant's workers are killed, fault and hang, again and again, while both count: the errors
// are hers alone and name the worker, and nothing is counted twice.
TEST_F(IsolatedTenants, NoticeNothingOfEachOthersDeaths) {
  Start({"--jwt-keys", keys_->path("jwt"), "--isolate", "tenant"});
  const pid_t daemon = daemon_->pid();
  const auto alice = CounterOf("alice");
  ASSERT_TRUE(alice->Run().Get().ok());
  std::set<pid_t> hers = WorkersOf(daemon);
  ASSERT_EQ(hers.size(), 1u);
  const auto bob = CounterOf("bob");
  ASSERT_TRUE(bob->Run().Get().ok());
  std::set<pid_t> his = WorkersOf(daemon);
  ASSERT_EQ(his.size(), 2u);
  his.erase(*hers.begin());

  int32_t counted = 1, bobs = 1, failed = 0;
  for (const int death : {SIGKILL, SIGSEGV, SIGSTOP, SIGKILL, SIGSEGV, SIGSTOP}) {
    const pid_t dying = *hers.begin();
    const int32_t failed_before = failed;
    kill(dying, death);
    std::vector<Future<RunInfo>> runs, others;
    for (int i = 0; i < 50; ++i) {
      runs.push_back(alice->Run());
      others.push_back(bob->Run());
    }
    int good = 0;
    for (const auto& run : runs) {
      const absl::Status status = run.Get().status();
      good += status.ok() ? 1 : 0;
      if (status.ok()) continue;
      ++failed;
      EXPECT_THAT(std::string(status.message()), HasSubstr("CPU:0's worker of tenant alice"));
    }
    // One that is stopped takes no run to its end.
    if (death == SIGSTOP) EXPECT_GT(failed, failed_before);
    for (const auto& run : others) {
      const absl::Status status = run.Get().status();
      EXPECT_TRUE(status.ok()) << status;
      bobs += status.ok() ? 1 : 0;
    }
    const auto value = alice->Value();
    if (value.ok()) {
      EXPECT_EQ(*value, counted + good);
      counted = *value;
    } else {
      alice->Reset();  // what the worker was writing is spoiled
      counted = 0;
    }
    EXPECT_TRUE(Becomes([&] {
      hers = WorkersOf(daemon);
      hers.erase(*his.begin());
      return hers.size() == 1 && !hers.contains(dying) && kill(*hers.begin(), 0) == 0;
    }));
    ASSERT_TRUE(Becomes([&] {
      if (alice->Run().Get().ok()) return true;
      alice->Reset();
      counted = 0;
      return false;
    }));
    ++counted;
  }
  EXPECT_GT(failed, 0);
  EXPECT_EQ(*bob->Value(), bobs);
  EXPECT_EQ(WorkersOf(daemon).count(*his.begin()), 1u) << "his worker is the one that it was";
}

TEST_F(IsolatedTenants, HaveNoMoreWorkersOnAGpuThanTheLimit) {
  Start({"--jwt-keys", keys_->path("jwt"), "--isolate", "tenant", "--gpu-workers", "1",
         "--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1", "--cuda-memory",
         "100000000"});
  auto alice = CounterOf("alice", "CUDA:0");
  ASSERT_TRUE(alice->Run().Get().ok());
  {
    const auto bob = CounterOf("bob", "CUDA:0");
    const absl::Status refused = bob->Run().Get().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("CUDA:0"), HasSubstr("all 1 worker processes"),
                      HasSubstr("try again"), HasSubstr("--gpu-workers")));
  }
  EXPECT_EQ(*alice->Value(), 1);
  alice.reset();
  EXPECT_TRUE(Becomes([&] { return CounterOf("bob", "CUDA:0")->Run().Get().ok(); }));
  EXPECT_EQ(DriversOf(daemon_->pid()).size(), 1u);
}

// Her worker answers nothing, and each of her sessions waits for it. His, which share the threads
// of the daemon with them, do not.
TEST_F(IsolatedTenants, OneWhoseWorkerDoesNotAnswerHoldsUpNobody) {
  Start({"--jwt-keys", keys_->path("jwt"), "--isolate", "tenant", "--worker-hang-time", "3600000",
         "--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1", "--cuda-memory",
         "100000000"});
  const auto alice = CounterOf("alice", "CUDA:0");
  ASSERT_TRUE(alice->Run().Get().ok());
  const std::set<pid_t> hers = DriversOf(daemon_->pid());
  ASSERT_EQ(hers.size(), 1u);
  const auto bob = CounterOf("bob"), bob_on_gpu = CounterOf("bob", "CUDA:0");
  ASSERT_TRUE(bob_on_gpu->Run().Get().ok());
  kill(*hers.begin(), SIGSTOP);
  std::vector<std::unique_ptr<Counter>> more;
  std::vector<Future<RunInfo>> waiting;
  for (int i = 0; i < 24; ++i) {
    more.push_back(CounterOf("alice", "CUDA:0"));
    waiting.push_back(more.back()->Run());
  }
  for (int i = 0; i < 20; ++i) {
    for (const auto& counter : {bob.get(), bob_on_gpu.get()}) {
      const absl::Status status = counter->Run().Get().status();
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  EXPECT_EQ(*bob->Value(), 20);
  EXPECT_EQ(*bob_on_gpu->Value(), 21);
  for (const auto& run : waiting) EXPECT_FALSE(run.has_result());
  kill(*hers.begin(), SIGKILL);
  for (const auto& run : waiting) (void)run.Get();
}

struct TestedGpu {
  std::string device;
  std::vector<std::string> flags;
  std::string needs = {};  // a file without which the machine has no such device; empty: it has
};

class IsolatedTenantsOnGpus : public IsolatedTenants,
                              public ::testing::WithParamInterface<TestedGpu> {};

// The same on a GPU: her buffers go with her process, and his stay. Her next one is there without
// anybody asking for it, and the GPU is never lost to others.
TEST_P(IsolatedTenantsOnGpus, NoticeNothingOfEachOthersDeaths) {
  const std::string& gpu = GetParam().device;
  if (const std::string& file = GetParam().needs; !file.empty() && !std::ifstream(file).is_open()) {
    GTEST_SKIP() << "PoCL is not installed (" << file << ")";
  }
  std::vector<std::string> flags = GetParam().flags;
  flags.insert(flags.end(), {"--jwt-keys", keys_->path("jwt"), "--isolate", "tenant"});
  Start(flags);
  const pid_t daemon = daemon_->pid();
  EXPECT_TRUE(DriversOf(daemon).empty()) << "none is started before it is used";
  auto alice = CounterOf("alice", gpu);
  ASSERT_TRUE(alice->Run().Get().ok());
  std::set<pid_t> hers = DriversOf(daemon);
  ASSERT_EQ(hers.size(), 1u);
  const auto bob = CounterOf("bob", gpu);
  ASSERT_TRUE(bob->Run().Get().ok());
  std::set<pid_t> his = DriversOf(daemon);
  ASSERT_EQ(his.size(), 2u);
  his.erase(*hers.begin());

  int32_t bobs = 1;
  uint64_t generation = 0;
  for (const int death : {SIGKILL, SIGSEGV, SIGSTOP, SIGKILL}) {
    SCOPED_TRACE(death);
    ++generation;
    const pid_t dying = *hers.begin();
    std::vector<Future<RunInfo>> runs, others;
    for (int i = 0; i < 60; ++i) {
      if (i == 20) kill(dying, death);
      runs.push_back(alice->Run());
      others.push_back(bob->Run());
    }
    absl::Status last;
    for (const auto& run : runs) last = run.Get().status();
    EXPECT_EQ(last.code(), absl::StatusCode::kUnavailable) << last;
    EXPECT_THAT(std::string(last.message()),
                AllOf(HasSubstr(StrCat(gpu, "'s worker of tenant alice (process ", dying, ")")),
                      HasSubstr(StrCat("(generation ", generation, ")"))));
    for (const auto& run : others) {
      const absl::Status status = run.Get().status();
      EXPECT_TRUE(status.ok()) << status;
      bobs += status.ok() ? 1 : 0;
    }
    EXPECT_TRUE(Becomes([&] {
      hers = DriversOf(daemon);
      hers.erase(*his.begin());
      return hers.size() == 1 && !hers.contains(dying);
    }));
    // Each is shown the GPU as it has it.
    const auto devices = connections_[1]->ListDevices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    ASSERT_EQ(devices->size(), 2u);
    EXPECT_TRUE((*devices)[1].healthy);
    EXPECT_EQ((*devices)[1].generation, 1u);
    EXPECT_TRUE(Becomes([&] {
      const auto hers_now = connections_[0]->ListDevices();
      return hers_now.ok() && (*hers_now)[1].healthy && (*hers_now)[1].generation == generation + 1;
    }));
    EXPECT_TRUE(Becomes([&] {
      alice = CounterOf("alice", gpu);
      return alice->Run().Get().ok();
    }));
    EXPECT_EQ(*alice->Value(), 1);
  }
  EXPECT_EQ(*bob->Value(), bobs);
  EXPECT_EQ(DriversOf(daemon).count(*his.begin()), 1u) << "his worker is the one that it was";
}

INSTANTIATE_TEST_SUITE_P(
    Gpus, IsolatedTenantsOnGpus,
    ::testing::Values(TestedGpu{"CUDA:0",
                                {"--cuda-library", TELEGRAD_FAKE_CUDA, "--cuda-devices", "1",
                                 "--cuda-memory", "100000000"}},
                      TestedGpu{"OPENCL:0",
                                {"--opencl-devices", "1", "--opencl-memory", "100000000",
                                 "--cuda-devices", "0"},
                                "/etc/OpenCL/vendors/pocl.icd"}),
    [](const auto& info) { return info.param.device.substr(0, info.param.device.find(':')); });

}  // namespace
}  // namespace telegrad
