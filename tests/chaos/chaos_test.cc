// Sessions whose connections are cut at random, all the time: each operation is carried out once,
// in its order, and afterwards nothing is left on the server. A graph adds one to a buffer, so that
// one run too many or too few shows in every read after it.
//
// TELEGRAD_CHAOS_OPERATIONS and TELEGRAD_CHAOS_SEED change what is done; run.sh does a million.
#include <cstdlib>
#include <random>
#include <thread>

#include "engine/ir/content_hash.h"
#include "tests/chaos/cutting_proxy.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using testing::CuttingProxy;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Slot 0 becomes slot 0 + 1.
FrozenGraph Increment() {
  Graph g;
  const UOp x = g.Param(0, DType::kInt32, Shape{1});
  const UOp one = g.Const(DType::kInt32, 1);
  return Freeze(g.Make(Op::kSink, {g.Make(Op::kStore, {x, g.Make(Op::kAdd, {x, one})})}));
}

constexpr const char* kGauges[] = {"telegrad_sessions", "telegrad_buffers", "telegrad_buffer_bytes",
                                   "telegrad_staged_bytes", "telegrad_device_memory_used_bytes"};

class ChaosTest : public DaemonTest {
 protected:
  int Port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }
  std::shared_ptr<Connection> Through(const CuttingProxy& proxy) {
    // Saying hello is not resumed by anything.
    while (true) {
      auto connection = Connection::Connect(StrCat("127.0.0.1:", proxy.port()));
      if (connection.ok()) return *std::move(connection);
    }
  }
  void ExpectNothingLeft() {
    for (const char* name : kGauges) EXPECT_TRUE(BecomesZero(name)) << name;
  }
};

// What one client does, and what it expects of it.
class Worker {
 public:
  Worker(Connection& connection, uint64_t seed)
      : random_(seed), session_(*connection.OpenSession({.resumable = true})) {
    session_->Alloc(kCounter, 4);
    session_->Put(graph_.root());
  }

  void Operate(uint64_t operations) {
    for (uint64_t i = 0; i < operations; ++i) {
      switch (random_() % 16) {
        default:
          session_->RunQuiet(hash_, handles_);
          ++count_;
          break;
        case 0:
        case 1:
        case 2:
          runs_.push_back(session_->Run(hash_, handles_));
          ++count_;
          break;
        case 3:
        case 4: {
          reads_.push_back({count_, std::make_unique<int32_t>(-1), {}});
          Read& read = reads_.back();
          read.done =
              session_->Read(kCounter, 0, std::as_writable_bytes(std::span(read.into.get(), 1)));
          break;
        }
        case 5:
          Exchange();
          break;
      }
      if (runs_.size() + reads_.size() > 2000) Settle();
    }
    Settle();
    EXPECT_TRUE(session_->Sync().Get().ok()) << session_->status();
  }

 private:
  struct Read {
    int32_t expected;
    std::unique_ptr<int32_t> into;
    Future<Done> done;
  };

  // A buffer that is made, written, read and freed; of an alloc that came twice the second would
  // fail.
  void Exchange() {
    const uint64_t handle = session_->NewHandle() + kCounter;
    auto sent = std::make_shared<std::vector<uint8_t>>(1 + random_() % 9000);
    for (uint8_t& byte : *sent) byte = static_cast<uint8_t>(random_());
    session_->Alloc(handle, static_cast<int64_t>(sent->size()));
    session_->WriteCopy(handle, 0, std::as_bytes(std::span(*sent)));
    auto back = std::make_shared<std::vector<uint8_t>>(sent->size());
    session_->Read(handle, 0, Writable(*back)).Then([sent, back](const absl::StatusOr<Done>& done) {
      EXPECT_TRUE(done.ok()) << done.status();
      EXPECT_EQ(*sent, *back);
    });
    session_->Free(handle);
  }

  void Settle() {
    for (const auto& run : runs_) ASSERT_TRUE(run.Get().ok()) << run.Get().status();
    for (const Read& read : reads_) {
      ASSERT_TRUE(read.done.Get().ok()) << read.done.Get().status();
      ASSERT_EQ(*read.into, read.expected);
    }
    runs_.clear();
    reads_.clear();
  }

  static constexpr uint64_t kCounter = 1'000'000;
  const FrozenGraph graph_ = Increment();
  const Digest hash_ = ContentHash(graph_.root());
  const std::vector<uint64_t> handles_ = {kCounter};
  std::mt19937_64 random_;
  int32_t count_ = 0;
  std::vector<Future<RunInfo>> runs_;
  std::vector<Read> reads_;
  std::unique_ptr<RemoteSession> session_;
};

TEST_F(ChaosTest, EveryOperationIsCarriedOutOnce) {
  constexpr uint64_t kClients = 4;
  const uint64_t seed = FromEnvironment("TELEGRAD_CHAOS_SEED", std::random_device{}());
  const uint64_t operations = FromEnvironment("TELEGRAD_CHAOS_OPERATIONS", 20'000);
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  {
    CuttingProxy proxy(Port(), {.seed = seed});
    std::vector<std::thread> clients;
    for (uint64_t i = 0; i < kClients; ++i) {
      clients.emplace_back([&, i] {
        const auto connection = Through(proxy);
        Worker(*connection, seed + i).Operate(operations / kClients);
      });
    }
    for (std::thread& client : clients) client.join();
    EXPECT_GT(proxy.cuts(), static_cast<int64_t>(operations / 1000));
    std::printf("%llu operations, %lld cuts, seed %llu\n",
                static_cast<unsigned long long>(operations), static_cast<long long>(proxy.cuts()),
                static_cast<unsigned long long>(seed));
  }
  EXPECT_EQ(Stat("telegrad_operation_errors_total"), 0);
  ExpectNothingLeft();
}

// A server that does not wait for its clients: what was lost is said to be so, and nothing else is.
TEST_F(ChaosTest, WhatALostSessionDidNotDoIsReported) {
  Start({"--session-grace", "1"});
  const uint64_t seed = FromEnvironment("TELEGRAD_CHAOS_SEED", std::random_device{}());
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  const FrozenGraph graph = Increment();
  const Digest hash = ContentHash(graph.root());
  const uint64_t handles[] = {1};
  int64_t ran = 0, unknown = 0, not_run = 0;
  CuttingProxy proxy(Port(), {.seed = seed, .mean_bytes = 30'000});
  for (int round = 0; round < 20; ++round) {
    const auto connection = Through(proxy);
    const auto session = *connection->OpenSession({.resumable = true});
    session->Alloc(1, 4);
    session->Put(graph.root());
    std::vector<Future<RunInfo>> runs;
    for (int i = 0; i < 500; ++i) runs.push_back(session->Run(hash, handles));
    for (const auto& run : runs) {
      const absl::Status status = run.Get().status();
      ran += status.ok();
      unknown += absl::IsUnknown(status);
      not_run += absl::IsUnavailable(status);
      EXPECT_TRUE(status.ok() || absl::IsUnknown(status) || absl::IsUnavailable(status)) << status;
    }
  }
  ExpectNothingLeft();
  const auto runs = static_cast<int64_t>(Stat("telegrad_runs_total"));
  EXPECT_EQ(ran + unknown + not_run, 20 * 500);
  EXPECT_LE(ran, runs);
  EXPECT_LE(runs, ran + unknown) << not_run << " were reported as not run";
}

}  // namespace
}  // namespace telegrad
