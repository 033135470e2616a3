// A front and a far server whose connections, to the client and to each other, are cut at random,
// while the worker process that runs the far kernels is killed at random: each run is carried out
// once or said to have failed, and afterwards nothing is left on either.
//
// TELEGRAD_CHAOS_OPERATIONS and TELEGRAD_CHAOS_SEED change what is done; run.sh does a million.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/ir/content_hash.h"
#include "tests/chaos/cutting_proxy.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using testing::CuttingProxy;

uint64_t Setting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

FrozenGraph AddOne() {
  Graph g;
  const UOp x = g.Param(0, DType::kInt32, Shape{1});
  const UOp sum = g.Make(Op::kAdd, {x, g.Const(DType::kInt32, 1)});
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {x, sum})}));
}

// The processes of that name that the daemon has started.
std::vector<pid_t> WorkersOf(pid_t daemon) {
  std::vector<pid_t> workers;
  for (const auto& thread :
       std::filesystem::directory_iterator(StrCat("/proc/", daemon, "/task"))) {
    std::ifstream children(thread.path() / "children");
    for (pid_t pid = 0; children >> pid;) {
      std::ifstream name(StrCat("/proc/", pid, "/comm"));
      std::string text;
      name >> text;
      if (text.starts_with("telegrad-device")) workers.push_back(pid);
    }
  }
  return workers;
}

class FrontChaosTest : public DaemonTest {
 protected:
  static int PortOf(const std::string& address) {
    return std::stoi(address.substr(address.rfind(':') + 1));
  }
  // Every round is runs of a counter from 0, and a read of it.
  void Round(RemoteSession& session, uint64_t runs, bool kill_worker) {
    const int32_t zero = 0;
    int32_t count = -1;
    session.WriteCopy(1, 0, std::as_bytes(std::span(&zero, 1)));
    std::vector<Future<RunInfo>> pending;
    const uint64_t handles[] = {1};
    for (uint64_t i = 0; i < runs; ++i) {
      if (kill_worker && i == runs / 2) {
        for (const pid_t worker : WorkersOf(daemon_->pid())) kill(worker, SIGKILL);
      }
      pending.push_back(session.Run(ContentHash(graph_.root()), handles));
    }
    const Future<Done> read = session.Read(1, 0, std::as_writable_bytes(std::span(&count, 1)));
    uint64_t ran = 0, failed = 0;
    for (const auto& run : pending) {
      const absl::Status status = run.Get().status();
      if (status.ok()) {
        EXPECT_EQ(failed, 0u) << "a run is fine that needs one that has failed";
        ++ran;
      } else {
        ++failed;
        EXPECT_TRUE(absl::IsUnavailable(status)) << status;
        EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("CPU:0"));
      }
    }
    const absl::Status status = read.Get().status();
    if (ran == runs) {
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(count, static_cast<int32_t>(runs));
      ++whole_;
    } else {
      ASSERT_TRUE(absl::IsUnavailable(status)) << status << " after " << ran << " of " << runs;
      ++failed_;
      // The next round is one of another worker.
      while (!connection_->ListDevices()->at(0).healthy) {
      }
    }
  }

  const FrozenGraph graph_ = AddOne();
  uint64_t whole_ = 0, failed_ = 0;  // rounds
};

TEST_F(FrontChaosTest, EveryRunIsCarriedOutOnceOrSaidToHaveFailed) {
  const uint64_t seed = Setting("TELEGRAD_CHAOS_SEED", std::random_device{}());
  const uint64_t operations = Setting("TELEGRAD_CHAOS_OPERATIONS", 2'000);
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  Start({"--isolate", "device"});
  int64_t cuts = 0, kills = 0;
  {
    const std::string bulk = connection_->server().bulk_address;
    CuttingProxy to_far(PortOf(address_), {.seed = seed});
    CuttingProxy to_sockets(PortOf(bulk), {.seed = seed + 2});
    testing::Process front(
        TELEGRADD, {"--listen", "127.0.0.1:0", "--cuda-devices", "0", "--cpu-memory", "1073741824",
                    "--log-level", "off", "--remote-wait", "60000", "--remote",
                    StrCat("far=127.0.0.1:", to_far.port()), "--remote-bulk",
                    StrCat("far=127.0.0.1:", to_sockets.port())});
    const std::string address = front.Line("listening on ");
    ASSERT_THAT(address, ::testing::HasSubstr("127.0.0.1:"));
    front.ReadOn();
    {
      CuttingProxy to_front(PortOf(address), {.seed = seed + 1});
      absl::StatusOr<std::shared_ptr<Connection>> connection = absl::UnavailableError("");
      while (!connection.ok()) {  // saying hello is not resumed by anything
        connection = Connection::Connect(StrCat("127.0.0.1:", to_front.port()));
      }
      const auto session = *(*connection)->OpenSession({.resumable = true});
      session->Alloc(1, 4, "far/CPU:0");
      session->Put(graph_.root());
      for (uint64_t done = 0; done < operations && !HasFatalFailure();) {
        const uint64_t runs = 1 + random() % 100;
        // Not in the first one, with which the buffer is allocated: that would be the end of it.
        const bool kill_worker = random() % 16 == 0 && done > 0;
        kills += kill_worker;
        Round(*session, runs, kill_worker);
        done += runs + 2;
      }
      cuts = to_front.cuts();
    }
    cuts += to_far.cuts() + to_sockets.cuts();
    const auto there = *Connection::Connect(address);
    for (const char* name : {"telegrad_sessions", "telegrad_buffers", "telegrad_staged_bytes"}) {
      while (there->Stats()->at(name) != 0) {
      }
    }
    for (const char* name :
         {"telegrad_buffers", "telegrad_buffer_bytes", "telegrad_staged_bytes"}) {
      EXPECT_TRUE(BecomesZero(name)) << name;
    }
    to_far.Spare();
    to_sockets.Spare();
    front.Signal(SIGTERM);
    EXPECT_TRUE(BecomesZero("telegrad_sessions")) << "of the front, which ends";
  }
  EXPECT_GT(cuts, 0);
  EXPECT_GT(whole_, 0u);
  std::printf("%llu operations, %lld cuts, %lld kills, %llu rounds whole, %llu failed, seed %llu\n",
              static_cast<unsigned long long>(operations), static_cast<long long>(cuts),
              static_cast<long long>(kills), static_cast<unsigned long long>(whole_),
              static_cast<unsigned long long>(failed_), static_cast<unsigned long long>(seed));
}

}  // namespace
}  // namespace telegrad
