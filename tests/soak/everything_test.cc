// Everything at once: two daemons, the one in front with a remote device and a worker process for
// each tenant, serve models over gRPC, HTTP and shared memory and runs of sessions, while clients,
// workers, compilers and the server behind are killed and the configuration is read again. Each
// answer has the value that a formula says, each error names one of the causes in soak_outcomes.h,
// and afterwards nothing is held in either daemon.
//
// TELEGRAD_SOAK_SECONDS (default 4) and TELEGRAD_SOAK_SEED change what is done; everything.sh runs
// half an hour.
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "engine/net/tcp.h"
#include "tests/soak/soak_clients.h"

namespace telegrad {
namespace {

using testing::ChildrenOf;
using testing::Outcomes;
using Clock = std::chrono::steady_clock;

uint64_t SoakSetting(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class EverythingTest : public SoakClients {
 protected:
  void StartCompute(size_t i, Random& random) {
    const char* const device = random() % 3 == 0 ? "back/CPU:0" : "CPU:0";
    std::vector<std::string> args;
    if (random() % 4 == 0) {
      args = {"train", "digits", "--epochs", "50"};
    } else {
      args = {"bench",      "--seconds",  "3600",
              "--sessions", "2",          "--depth",
              "4",          "--elements", StrCat((random() % 32 + 1) * 512)};
    }
    args.insert(args.end(), {"--address", address_, "--device", device, "--token-file",
                             TokenFile(random() % 2 == 0 ? "alice" : "bob")});
    compute_[i] = std::make_unique<testing::Process>(TELEGRAD, args);
    compute_[i]->ReadOn();
  }
  void KillOneOf(pid_t daemon, const char* name, Random& random, uint64_t* count) {
    const auto children = ChildrenOf(daemon, name);
    if (children.empty()) return;
    kill(children[random() % children.size()], SIGKILL);
    ++*count;
  }
  void FaultOnce(Random& random, bool back_may_go) {
    switch (random() % (back_may_go ? 12 : 11)) {
      case 0:
      case 1: {
        const size_t i = random() % std::size(compute_);
        compute_[i].reset();  // kills it
        StartCompute(i, random);
        ++kills_.clients;
        break;
      }
      case 2:
      case 3:
        return KillOneOf(daemon_->pid(), "telegrad-device-worker", random, &kills_.workers);
      case 4:
        return KillOneOf(back_->pid(), "telegrad-device-worker", random, &kills_.workers);
      case 5:
      case 6:
        return KillOneOf(daemon_->pid(), "telegrad-compile-worker", random, &kills_.compilers);
      case 7:
        return KillOneOf(back_->pid(), "telegrad-compile-worker", random, &kills_.compilers);
      case 8:
      case 9:
        WriteTenants(random());
        daemon_->Signal(SIGHUP);
        ++kills_.reloads;
        break;
      case 10: {  // a stranger, who does not get an answer that could be right
        std::string noise(2048, '\0');
        for (char& c : noise) c = static_cast<char>(random());
        const std::string& where = random() % 2 == 0 ? http_ : address_;
        const auto fd = ConnectTcp(where, Clock::now() + std::chrono::seconds(30));
        if (fd.ok()) send(fd->get(), noise.data(), noise.size(), MSG_NOSIGNAL);
        break;
      }
      default:
        back_.reset();
        StartBack();
        ++kills_.backs;
    }
  }

  // All clients and faults for `seconds`, in the last quarter of which the server behind stays.
  void Phase(double seconds, uint64_t seed) {
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    const auto client = [&](std::function<void(Random&)> once) {
      threads.emplace_back([&stop, once = std::move(once), random = Random(++seed)]() mutable {
        while (!stop) once(random);
      });
    };
    const std::string alice = Token("alice"), bob = Token("bob");
    for (const std::string& token : {alice, bob, alice}) {
      client([this, token](Random& random) { InferOnce(random, token); });
    }
    client([this, alice](Random& random) { HttpOnce(random, alice); });
    client([this, bob](Random& random) { HttpOnce(random, bob); });
    client([this, bob](Random& random) { StreamOnce(random, bob); });
    for (int64_t id = 1; id <= 3; ++id) {
      client([this, alice, id](Random& random) { SequenceOnce(random, alice, id); });
    }
    client([this, alice](Random& random) { SharedOnce(random, alice, region_); });
    client([this, alice](Random& random) { MovingOnce(random, alice); });
    client([this, bob](Random& random) { TurnOnce(random, bob); });
    client([this](Random& random) { LoadOnce(random); });
    for (const char* tenant : {"alice", "bob"}) {
      client([this, connection = ConnectAs(tenant)](Random& random) {
        CountOnce(random, connection);
      });
    }
    client(
        [this, connection = ConnectAs("carol")](Random& random) { QuotaOnce(random, connection); });
    Random random(seed);
    for (size_t i = 0; i < std::size(compute_); ++i) StartCompute(i, random);
    const auto begin = Clock::now();
    const auto at = [&](double part) {
      return begin + std::chrono::milliseconds(static_cast<int64_t>(part * seconds * 1000));
    };
    std::mutex pace;
    std::condition_variable never;
    auto told = begin;
    while (Clock::now() < at(1) && !HasFatalFailure()) {
      FaultOnce(random, Clock::now() < at(0.75));
      std::unique_lock lock(pace);
      never.wait_for(lock, std::chrono::milliseconds(50 + random() % 250), [] { return false; });
      if (Clock::now() - told < std::chrono::seconds(30)) continue;
      told = Clock::now();
      Tell();
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    for (auto& process : compute_) process.reset();
  }
  void Tell() {
    const Outcomes::Sums sums = outcomes_.Now();
    std::printf(
        "soak: %llu answered, %llu failed, %llu wrong, %llu kills, heap %.1f MB, resident "
        "%.1f MB\n",
        static_cast<unsigned long long>(sums.answered),
        static_cast<unsigned long long>(sums.failed), static_cast<unsigned long long>(sums.wrong),
        static_cast<unsigned long long>(kills_.workers + kills_.compilers + kills_.clients +
                                        kills_.backs),
        HeapOf(*front_admin_) / 1e6, static_cast<double>(daemon_->Resident()) / 1e6);
    std::fflush(stdout);
  }
  static double HeapOf(Connection& connection) {
    const auto stats = connection.Stats();
    return stats.ok() ? stats->at("telegrad_heap_bytes") : -1;
  }
  // gRPC has some descriptors more or less, by its own load, and so have other pools threads. One
  // that is lost with each fault would be more of them after a few seconds.
  static constexpr int64_t kOfPools = 4;
  static constexpr double kOfHeap = 4 << 20;
  // Every model answers again, then is unloaded, and nothing is held.
  struct Rest {
    double heap = 0, back_heap = 0;
    int64_t descriptors = 0, threads = 0;

    bool NoMoreThan(const Rest& before) const {
      return descriptors <= before.descriptors + kOfPools && threads <= before.threads + kOfPools &&
             heap <= before.heap + kOfHeap && back_heap <= before.back_heap + kOfHeap;
    }
  };
  static bool Eventually(const std::function<bool()>& condition, int seconds = 60) {
    const auto deadline = Clock::now() + std::chrono::seconds(seconds);
    while (!condition()) {
      if (Clock::now() > deadline) return false;
    }
    return true;
  }
  Rest Settle(const Rest* before) {
    std::string token = Token("alice");
    for (const Served& model : kServed) {
      const std::vector<float> x{1, 2, 3, 4};
      absl::Status status;
      EXPECT_TRUE(Eventually([&] {
        const auto answer = Answer(token, Request(model, x));
        status = answer.status();
        if (answer.ok()) Compare(model.name, Values<float>(*answer), model.factor, model.addend, x);
        return answer.ok();
      })) << model.name
          << " does not come back: " << status;
    }
    for (const auto& row : Index()) {
      const absl::Status status = LoadAs(token_, row, false);
      EXPECT_TRUE(status.ok()) << row << ": " << status;
    }
    std::string held;
    EXPECT_TRUE(Eventually([&] {
      held = testing::StillHeld(*front_admin_, front_admin_, 0);
      return held.empty();
    })) << "the daemon in front holds: "
        << held;
    EXPECT_TRUE(Eventually([&] {
      held = testing::StillHeld(*back_admin_, back_admin_, 1e9);
      return held.empty();
    })) << "the daemon behind holds: "
        << held;
    Rest now;
    const auto look = [&] {
      now = {HeapOf(*front_admin_), HeapOf(*back_admin_), testing::DescriptorsOf(daemon_->pid()),
             testing::ThreadsOf(daemon_->pid())};
      return before == nullptr || now.NoMoreThan(*before);
    };
    Eventually(look, /*seconds=*/10);
    return now;
  }
  void LoadEverything() {
    for (const char* name : {"near", "both", "far", "answers", "scale", "joined", "some", "plus",
                             "separate", "sum", "turn0", "turn1", "turn2", "moving"}) {
      const absl::Status status = LoadAs(token_, name, true);
      EXPECT_TRUE(status.ok()) << name << ": " << status;
    }
    moving_loaded_ = moving_written_.load();
  }

  std::unique_ptr<testing::Process> compute_[3];
  std::string region_;
  struct {
    uint64_t clients = 0, workers = 0, compilers = 0, backs = 0, reloads = 0;
  } kills_;
};

TEST_F(EverythingTest, AllAccountsAreZeroAfterwards) {
  const uint64_t seed = SoakSetting("TELEGRAD_SOAK_SEED", std::random_device{}());
  const auto seconds = static_cast<double>(SoakSetting("TELEGRAD_SOAK_SECONDS", 4));
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  region_ = Key("alice", "soak");
  LoadEverything();
  Phase(seconds / 4, seed);
  Rest warm = Settle(nullptr), end;
  // Pools may need more than one phase to have all of their threads. What is lost with faults is
  // lost in each phase.
  for (uint64_t phase = 1; phase <= 3; ++phase) {
    if (phase > 1) warm = end;
    LoadEverything();
    Phase(seconds * 3 / 4, seed + 1000 * phase);
    end = Settle(&warm);
    if (end.NoMoreThan(warm)) break;
  }

  const Outcomes::Sums sums = outcomes_.Now();
  for (const auto& [kind, count] : sums.allowed) {
    std::printf("soak: %llu times %s\n", static_cast<unsigned long long>(count), kind.c_str());
  }
  for (const auto& [kind, count] : sums.others) {
    ADD_FAILURE() << count << " times, not a cause that is allowed: " << kind;
  }
  EXPECT_EQ(sums.wrong, 0u);
  EXPECT_GT(sums.answered, 0u);
  EXPECT_EQ(RegionsOf(Token("alice")), 0);
  EXPECT_LE(end.descriptors, warm.descriptors + kOfPools);
  EXPECT_LE(end.threads, warm.threads + kOfPools);
  EXPECT_LE(end.heap, warm.heap + kOfHeap);
  EXPECT_LE(end.back_heap, warm.back_heap + kOfHeap);
  const double operations = Stat("telegrad_operations_total");
  // The sessions of the daemon in front go with it.
  daemon_->Signal(SIGTERM);
  const testing::Output over = daemon_->Wait();
  EXPECT_EQ(over.exit_code, 0) << over.text;
  std::string held;
  EXPECT_TRUE(Eventually([&] {
    held = testing::StillHeld(*back_admin_, back_admin_, 0);
    return held.empty();
  })) << "the daemon behind holds: "
      << held;
  back_->Signal(SIGTERM);
  EXPECT_EQ(back_->Wait().exit_code, 0);
  const auto kb = [](double bytes) { return StrCat(static_cast<int64_t>(bytes / 1024), " kB"); };
  std::puts(StrCat("soak: ", seconds, " s, seed ", seed, ": ", sums.answered,
                   " requests answered, ", sums.failed, " failed with a cause, ", sums.wrong,
                   " wrong; ", static_cast<uint64_t>(operations), " operations; ", loads_.load(),
                   " loads, ", kills_.reloads, " reloads; killed: ", kills_.clients, " clients, ",
                   kills_.workers, " workers, ", kills_.compilers, " compilers, ", kills_.backs,
                   " servers behind; heap ", kb(warm.heap), " -> ", kb(end.heap), ", behind ",
                   kb(warm.back_heap), " -> ", kb(end.back_heap), "; descriptors ",
                   warm.descriptors, " -> ", end.descriptors, ", threads ", warm.threads, " -> ",
                   end.threads)
                .c_str());
}

}  // namespace
}  // namespace telegrad
