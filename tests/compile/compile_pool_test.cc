// The pool against workers that crash, hang, exit and send wrong answers, and against the real
// worker.
#include "engine/compile/compile_pool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/compile/worker_process.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

class CompilePoolTest : public ::testing::Test {
 protected:
  CompilePoolTest()
      : folder_(StrCat(testing::TempDir(), "compile_pool_", getpid(), "_",
                       testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~CompilePoolTest() override {
    pool_.reset();
    std::filesystem::remove_all(folder_);
  }

  CompilePool::Options Options(int workers) {
    CompilePool::Options options;
    options.executable = FAKE_WORKER;
    options.workers = workers;
    options.first_delay = options.last_delay = milliseconds(1);
    options.on_death = [this](const std::string& what, const std::string& kernel) {
      const std::lock_guard lock(mutex_);
      deaths_.push_back(StrCat(kernel, ": ", what));
    };
    return options;
  }
  void Start(const CompilePool::Options& options) {
    auto pool = CompilePool::Start(options);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }

  absl::StatusOr<std::string> Compile(const std::string& text, const std::string& name = "k") {
    Budget budget;
    TG_ASSIGN_OR_RETURN(ProgramImage image, pool_->Compile(text, name, Target(), &budget));
    return image.binary;
  }
  // Compiles in a thread of its own.
  std::thread Beside(const std::string& text, absl::StatusOr<std::string>* result) {
    return std::thread([this, text, result] { *result = Compile(text); });
  }
  std::string Fifo(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }
  // The fake under another name.
  std::string Called(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_symlink(FAKE_WORKER, path);
    return path;
  }
  std::vector<std::string> deaths() {
    const std::lock_guard lock(mutex_);
    return deaths_;
  }

  const std::string folder_;
  std::mutex mutex_;
  std::vector<std::string> deaths_;
  std::unique_ptr<CompilePool> pool_;
};

TEST_F(CompilePoolTest, AnswersComeBack) {
  Start(Options(2));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{70'000}, kMaxIrBytes}) {
    const std::string text(size, ' ');
    const auto answer = Compile(text);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, text);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Compile(std::string(kMaxIrBytes + 1, ' ')).status()));
  const auto error = Compile("error").status();
  EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(error.message(), "no such op");
  EXPECT_EQ(pool_->stats().deaths, 0u);
  EXPECT_EQ(pool_->identity(), "fake");
}

TEST_F(CompilePoolTest, WorkersGetNothingOfThisProcess) {
  // Descriptors that an exec would keep, a blocked and an ignored signal.
  const int leaked = open("/dev/null", O_RDONLY);
  const int high = dup2(leaked, 200);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  const auto before = signal(SIGPIPE, SIG_IGN);
  auto options = Options(1);
  options.memory_bytes = int64_t{3} << 30;
  Start(options);
  EXPECT_EQ(*Compile("descriptors"), "0 1 2 3 ");
  EXPECT_EQ(
      *Compile("limits"),
      StrCat("0 ", kLimitsMemory ? static_cast<rlim_t>(options.memory_bytes) : RLIM_INFINITY));
  EXPECT_EQ(*Compile("signals"), "0 1 1");
  EXPECT_EQ(*Compile("environment"), "none");
  signal(SIGPIPE, before);
  pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
  close(leaked);
  close(high);
}

// A death costs its kernel, which is named, after a second attempt; the worker comes back.
TEST_F(CompilePoolTest, DeathsAreErrorsOfTheKernel) {
  Start(Options(1));
  const struct {
    std::string text, message;
  } kCases[] = {
      {"segfault", "was ended by signal 11 (Segmentation fault), its last output: what a crash"},
      {"abort", "was ended by signal 6 (Aborted)"},
      {"exit", "ended with exit code 7"},
      {"other", "an answer to another request"},
      {"text", "a malformed answer"},
      {"nothing", "a malformed answer"},
      {"checksum", "a frame with a wrong checksum"},
      {"endless", "a frame of 4294967295 bytes, over"},
      {"half", "ended with exit code 0"},
  };
  uint64_t count = 0;
  for (const auto& c : kCases) {
    const absl::Status status = Compile(c.text, "k_" + c.text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("kernel k_" + c.text + ": "));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
    EXPECT_THAT(std::string(status.message()), HasSubstr("a second attempt in a fresh process"));
    EXPECT_EQ(*Compile("fine"), "fine") << "after " << c.text;
    EXPECT_EQ(pool_->stats().retries, ++count);
    EXPECT_EQ(pool_->stats().deaths, 2 * count);
    ASSERT_EQ(deaths().size(), 2 * count);
    EXPECT_THAT(deaths().back(), HasSubstr("k_" + c.text + ": "));
  }
}

TEST_F(CompilePoolTest, ADeathFromOutsideCostsNothing) {
  Start(Options(1));
  const auto answer = Compile("once " + folder_ + "/mark");
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(pool_->stats().retries, 1u);
}

// Unlike one that dies by itself, which is tried a second time at most.
TEST_F(CompilePoolTest, ManyKillsFromOutsideCostNothing) {
  Start(Options(2));
  const auto answer = Compile("killed " + folder_ + "/kills 5");
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(pool_->stats().retries, 5u);
  const absl::Status forever = Compile("killed " + folder_ + "/more 1000").status();
  EXPECT_EQ(forever.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(forever.message()), HasSubstr("attempt 8, after "));
  EXPECT_EQ(std::filesystem::file_size(folder_ + "/more"), 8u);
}

// At any moment: in the middle of an answer, after it, when the process takes long to end.
TEST_F(CompilePoolTest, KillsAtAnyMomentCostNothing) {
  Start(Options(1));
  uint64_t retries = 0;
  for (const char* text : {"killed", "torn", "slow"}) {
    const auto answer = Compile(StrCat(text, " ", folder_, "/", text, " 3"));
    EXPECT_TRUE(answer.ok()) << text << ": " << answer.status();
    EXPECT_EQ(pool_->stats().retries, retries += 3) << text;
  }
  for (int i = 0; i < 20; ++i) {  // whether the next kernel comes before or after the kill
    EXPECT_TRUE(Compile("dies").ok());
    const auto answer = Compile("fine");
    EXPECT_TRUE(answer.ok()) << answer.status();
  }
}

// The files of these tests, which have a byte for each start, are those of fake_worker.cc.
TEST_F(CompilePoolTest, AKillAtTheStartCostsNothing) {
  const std::string starts = folder_ + "/killed_starts";
  std::ofstream(starts) << "xxx";
  auto options = Options(1);
  options.executable = Called("telegrad-worker");
  Start(options);
  EXPECT_EQ(pool_->stats().deaths, 3u);
  EXPECT_THAT(deaths(), ::testing::Each(HasSubstr("signal 9")));
  std::ofstream(starts) << "xxxx";
  // There is one worker, which is killed with the kernel and then four times as it starts.
  const auto answer = Compile("killed " + folder_ + "/mark 1");
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(std::filesystem::file_size(starts), 0u);
  EXPECT_EQ(pool_->stats().retries, 1u);
  EXPECT_EQ(pool_->stats().deaths, 8u);
}

TEST_F(CompilePoolTest, AKernelThatComesBetweenTwoStartsWaits) {
  const std::string starts = folder_ + "/killed_starts";
  auto options = Options(1);
  options.executable = Called("telegrad-worker");
  options.attempts = INT_MAX;
  Start(options);
  std::ofstream(starts) << std::string(1 << 20, 'x');
  ASSERT_TRUE(Compile("dies").ok());
  absl::StatusOr<std::string> first, second;
  std::atomic<bool> over = false;
  std::thread one = Beside("first", &first);  // by which the death is noticed
  while (deaths().size() < 3) std::this_thread::yield();
  std::thread other([&] {
    second = Compile("second");
    over = true;
  });
  while (pool_->stats().waiting < 2 && !over) std::this_thread::yield();
  std::filesystem::remove(starts);
  one.join();
  other.join();
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(second.ok()) << second.status();
}

// If something kills whatever starts, that is an error like a file that is no worker.
TEST_F(CompilePoolTest, KillsAtTheStartHaveAnEnd) {
  const std::string starts = folder_ + "/killed_starts";
  auto options = Options(2);
  options.executable = Called("telegrad-worker");
  options.attempts = 3;
  std::ofstream(starts) << std::string(1 << 20, 'x');
  const absl::Status none = CompilePool::Start(options).status();
  EXPECT_TRUE(absl::IsUnavailable(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("cannot start the compile worker"));
  EXPECT_THAT(std::string(none.message()), HasSubstr("signal 9"));
  EXPECT_LE(std::filesystem::file_size(starts), (1u << 20) - 6) << "three of each";
  std::filesystem::remove(starts);
  Start(options);
  std::ofstream(starts) << std::string(1 << 20, 'x');
  const absl::Status killed = Compile("killed " + folder_ + "/mark 1000").status();
  EXPECT_TRUE(absl::IsUnavailable(killed)) << killed;
  EXPECT_THAT(std::string(killed.message()), HasSubstr("signal 9"));
  std::filesystem::remove(starts);
  while (pool_->stats().workers == 0) std::this_thread::yield();
  EXPECT_EQ(*Compile("fine"), "fine");
}

// Both workers are gone. One cannot be started at first, the other one takes its time.
TEST_F(CompilePoolTest, AStartThatFailsIsNotTheEndOfAnother) {
  auto options = Options(2);
  options.executable = Called("telegrad-worker");
  Start(options);
  while (pool_->stats().workers < 2) std::this_thread::yield();
  absl::StatusOr<std::string> held, killed;
  const std::string pid_file = folder_ + "/pid";
  std::thread first = Beside("held " + pid_file, &held);
  int pid = 0;
  while (pid == 0) std::ifstream(pid_file) >> pid;
  const int gate = open((folder_ + "/gate").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  ASSERT_EQ(flock(gate, LOCK_EX), 0);
  std::thread second = Beside("killed " + folder_ + "/mark 1", &killed);
  while (!std::filesystem::exists(folder_ + "/gate_reached")) std::this_thread::yield();
  std::ofstream(folder_ + "/failed_starts") << "x";
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const auto has_failed = [this] {
    const auto all = deaths();
    return std::ranges::any_of(
        all, [](const std::string& one) { return one.find("exit code 7") != one.npos; });
  };
  while (!has_failed()) std::this_thread::yield();
  flock(gate, LOCK_UN);
  first.join();
  second.join();
  close(gate);
  EXPECT_TRUE(held.ok()) << held.status();
  EXPECT_TRUE(killed.ok()) << killed.status();
}

TEST_F(CompilePoolTest, AWorkerThatDiesBetweenKernelsIsReplaced) {
  Start(Options(1));
  for (const char* text : {"bye", "more"}) {
    EXPECT_TRUE(Compile(text).ok());
    const auto next = Compile("next");  // is never given to a worker in doubt
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(*next, "next");
  }
  const int pid = std::stoi(*Compile("pid"));
  EXPECT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_NE(std::stoi(*Compile("pid")), pid);
}

// Whichever of the two is called for a kernel: the one that is gone, and cannot come back, or the
// other.
TEST_F(CompilePoolTest, WhoIsThereTakesTheWorkOfWhoIsGone) {
  auto options = Options(2);
  options.executable = Called("telegrad-leaving-worker");
  Start(options);
  while (pool_->stats().workers < 2) std::this_thread::yield();
  const int pid = std::stoi(*Compile("pid"));
  std::filesystem::remove(options.executable);
  EXPECT_EQ(kill(pid, SIGKILL), 0);
  for (int i = 0; i < 4; ++i) {
    Budget budget({.time = std::chrono::seconds(20)});
    const auto answer = pool_->Compile("echo", "k", Target(), &budget);
    EXPECT_TRUE(answer.ok()) << answer.status();
  }
}

TEST_F(CompilePoolTest, AHangEndsAtTheDeadlineAndIsNotRepeated) {
  auto options = Options(1);
  options.deadline = milliseconds(50);
  Start(options);
  const absl::Status status = Compile("hang", "k_slow").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "kernel k_slow: its compiler took longer than 50 ms and was killed");
  EXPECT_EQ(pool_->stats().retries, 0u);
  EXPECT_EQ(*Compile("fine"), "fine");
}

TEST_F(CompilePoolTest, WhatAWorkerHasStartedEndsWithIt) {
  auto options = Options(1);
  options.deadline = milliseconds(300);
  Start(options);
  const std::string path = folder_ + "/child";
  EXPECT_FALSE(Compile("starts " + path).ok());
  int child = 0;
  std::ifstream(path) >> child;
  ASSERT_GT(child, 0);
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  if (process < 0) return;  // has ended already
  pollfd one{process, POLLIN, 0};
  EXPECT_EQ(poll(&one, 1, 10'000), 1) << "process " << child << " is still there";
  close(process);
}

// Two kernels that wait for each other end only if they are compiled at the same time; three
// workers take three such.
TEST_F(CompilePoolTest, WorkersWorkAtTheSameTime) {
  Start(Options(3));
  const std::string ab = Fifo("ab"), cd = Fifo("cd");
  absl::StatusOr<std::string> results[2];
  std::thread first = Beside("write " + ab, &results[0]);
  EXPECT_TRUE(Compile("read " + ab).ok());
  std::thread second = Beside("read " + cd, &results[1]);
  EXPECT_TRUE(Compile("write " + cd).ok());
  first.join();
  second.join();
  for (const auto& result : results) EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(pool_->stats().deaths, 0u);
}

// The only worker has kernels of one tenant that do not end before somebody meets them.
TEST_F(CompilePoolTest, TenantsTakeTurns) {
  Start(Options(1));
  const std::string first = Fifo("first");
  std::vector<std::string> others;
  const auto heavy = std::make_shared<Share>("heavy", 1);
  const auto compile = [&](const std::string& text, std::shared_ptr<const Share> share) {
    Budget budget;
    budget.SetShare(std::move(share));
    EXPECT_TRUE(pool_->Compile(text, "k", Target(), &budget).ok());
  };
  std::vector<std::thread> threads;
  threads.emplace_back(compile, "write " + first, heavy);
  while (pool_->stats().compiling == 0) std::this_thread::yield();
  for (int i = 0; i < 4; ++i) {
    others.push_back(Fifo(StrCat("other", i)));
    threads.emplace_back(compile, "write " + others.back(), heavy);
    while (pool_->stats().waiting <= i) std::this_thread::yield();
  }
  std::thread light(compile, "fine", std::make_shared<Share>("light", 1));
  while (pool_->stats().waiting < 5) std::this_thread::yield();
  close(open(first.c_str(), O_RDONLY));
  light.join();
  EXPECT_GE(pool_->stats().waiting, 3) << "who came last was not the last";
  for (const std::string& other : others) close(open(other.c_str(), O_RDONLY));
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CompilePoolTest, WorkersStandBack) {
  CompilePool::Options options = Options(1);
  options.nice = 11;
  Start(options);
  EXPECT_EQ(*Compile("nice"), "11");
}

TEST_F(CompilePoolTest, OtherKernelsDoNotNoticeACrash) {
  Start(Options(2));
  const std::string fifo = Fifo("fifo");
  absl::StatusOr<std::string> result;
  std::thread other = Beside("write " + fifo, &result);
  EXPECT_FALSE(Compile("segfault").ok());  // two deaths, on the other worker
  EXPECT_EQ(*Compile("fine"), "fine");
  close(open(fifo.c_str(), O_RDONLY));
  other.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(pool_->stats().deaths, 2u);
}

TEST_F(CompilePoolTest, ManyKernelsThroughFewWorkersWithDeathsBetween) {
  Start(Options(3));
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string text = StrCat("kernel ", t, " ", i);
        const auto answer = Compile(text);
        EXPECT_TRUE(answer.ok()) << answer.status();
        EXPECT_EQ(answer.value_or(""), text);
        if (i % 7 != t) continue;
        EXPECT_FALSE(Compile("segfault").ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool_->stats().waiting, 0);
  EXPECT_EQ(pool_->stats().compiling, 0);
}

TEST_F(CompilePoolTest, ACancelledJobWaitsNoLonger) {
  Start(Options(1));
  const std::string fifo = Fifo("fifo");
  absl::StatusOr<std::string> result;
  std::thread other = Beside("write " + fifo, &result);
  while (pool_->stats().compiling == 0) std::this_thread::yield();
  Budget budget;
  budget.Cancel();
  const auto cancelled = pool_->Compile("never", "k", Target(), &budget);
  EXPECT_TRUE(absl::IsCancelled(cancelled.status())) << cancelled.status();
  close(open(fifo.c_str(), O_RDONLY));
  other.join();
  EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(pool_->stats().waiting, 0);
}

// Its caller has left, the worker has not: the pool waits for neither.
TEST_F(CompilePoolTest, EndsWhileWorkersAreBusy) {
  Start(Options(2));
  Budget budget;
  std::thread caller([&] {
    EXPECT_TRUE(absl::IsCancelled(pool_->Compile("hang", "k", Target(), &budget).status()));
  });
  while (pool_->stats().compiling == 0) std::this_thread::yield();
  budget.Cancel();
  caller.join();
  pool_.reset();
  EXPECT_TRUE(deaths().empty());
}

// Whoever gives up while a worker has the kernel pays for it, and the worker has time for others:
// nobody meets the one that was given up.
TEST_F(CompilePoolTest, WhoGivesUpPaysAndHoldsNoWorker) {
  auto options = Options(1);
  options.deadline = std::chrono::hours(1);
  Start(options);
  for (int i = 0; i < 3; ++i) {
    Budget budget;
    std::thread caller([&] {
      EXPECT_TRUE(absl::IsCancelled(pool_->Compile("hang", "k", Target(), &budget).status()));
    });
    while (pool_->stats().compiling == 0) std::this_thread::yield();
    budget.Cancel();
    caller.join();
    EXPECT_GT(budget.worked_ns(), 0);
    EXPECT_EQ(*Compile("fine"), "fine");
  }
  EXPECT_EQ(pool_->stats().deaths, 0u) << "it was asked to end";
  EXPECT_EQ(pool_->stats().retries, 0u);
  EXPECT_THAT(deaths(), ::testing::IsEmpty());
}

// One tenant's kernels have all workers, and end when the test says so.
TEST_F(CompilePoolTest, WhoHasNoWorkerGetsASpareOne) {
  auto options = Options(2);
  options.spare = 2;
  options.spare_idle = milliseconds(1);
  Start(options);
  while (pool_->stats().workers < 2) std::this_thread::yield();
  const auto heavy = std::make_shared<Share>("heavy");
  const auto compile = [&](const std::string& text, const std::shared_ptr<const Share>& share) {
    Budget budget;
    budget.SetShare(share);
    const auto answer = pool_->Compile(text, "k", Target(), &budget);
    EXPECT_TRUE(answer.ok()) << answer.status();
  };
  std::vector<std::thread> threads;
  std::vector<std::string> fifos;
  for (int i = 0; i < 4; ++i) {
    fifos.push_back(Fifo(StrCat("fifo", i)));
    threads.emplace_back(compile, "write " + fifos.back(), heavy);
    while (pool_->stats().compiling + pool_->stats().waiting <= i) std::this_thread::yield();
  }
  EXPECT_EQ(pool_->stats().workers, 2) << "spare ones are not for who has some";
  for (int i = 0; i < 3; ++i) compile("fine", std::make_shared<Share>("light"));
  EXPECT_EQ(pool_->stats().compiling, 2);
  EXPECT_EQ(pool_->stats().waiting, 2);
  for (const std::string& fifo : fifos) close(open(fifo.c_str(), O_RDONLY));
  for (std::thread& thread : threads) thread.join();
  while (pool_->stats().workers > 2) std::this_thread::yield();
  EXPECT_EQ(pool_->stats().deaths, 0u) << "they were not needed any more";
}

TEST_F(CompilePoolTest, SaysWhyWorkersDoNotStart) {
  const struct {
    std::string executable, message;
  } kCases[] = {
      {folder_ + "/absent", "No such file or directory"},
      {"/dev/null", "Permission denied"},
      {"/bin/true", "ended with exit code 0"},
      {Called("telegrad-chatty-worker"), "no frame begins here"},
  };
  for (const auto& c : kCases) {
    auto options = Options(2);
    options.executable = c.executable;
    const absl::Status status = CompilePool::Start(options).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("cannot start the compile worker " + c.executable));
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

// When the file is replaced under a running daemon, its code would get into caches under the name
// of the old one.
TEST_F(CompilePoolTest, AWorkerOfAnotherBuildIsRefused) {
  auto options = Options(1);
  options.executable = Called("telegrad-foreign-worker");
  Start(options);
  EXPECT_FALSE(Compile("segfault").ok());
  const absl::Status status = Compile("fine").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("restart the daemon"));
}

class RealWorkerTest : public CompilePoolTest {
 protected:
  void StartReal(int64_t memory_bytes) {
    auto options = Options(2);
    options.executable = REAL_WORKER;
    options.memory_bytes = memory_bytes;
    Start(options);
  }
};

constexpr char kReturn[] = "define void @k(ptr %b, i64 %begin, i64 %end) {\n ret void\n}\n";

TEST_F(RealWorkerTest, CompilesWhatThisProcessDoes) {
  StartReal(0);
  EXPECT_THAT(pool_->identity(), HasSubstr("LLVM 19"));
  const Target target = HostTarget(1);
  Budget budget;
  const auto ours = telegrad::Compile(kReturn, "k", target);
  const auto its = pool_->Compile(kReturn, "k", target, &budget);
  ASSERT_TRUE(ours.ok() && its.ok()) << its.status();
  EXPECT_EQ(its->binary, ours->binary);
  EXPECT_EQ(its->name, "k");
  const auto bad = pool_->Compile("nonsense", "k_bad", target, &budget).status();
  EXPECT_EQ(bad, telegrad::Compile("nonsense", "k_bad", target).status());
  EXPECT_EQ(pool_->stats().deaths, 0u);
}

// LLVM has no way to say that it is out of memory but to end the process.
TEST_F(RealWorkerTest, MemoryIsLimited) {
  if (!kLimitsMemory) GTEST_SKIP() << "a sanitizer needs more memory than any limit";
  StartReal(int64_t{256} << 20);
  std::string body;
  for (int i = 0; i < 150'000; ++i) {
    StrAppend(&body, " %p", i, " = getelementptr i64, ptr %b, i64 ", i, "\n store volatile i64 ", i,
              ", ptr %p", i, "\n");
  }
  ASSERT_LE(body.size(), kMaxIrBytes);
  const Target target = HostTarget(1);
  Budget budget;
  const auto status =
      pool_
          ->Compile("define void @k(ptr %b, i64 %begin, i64 %end) {\n" + body + " ret void\n}\n",
                    "k_large", target, &budget)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("kernel k_large: its compiler"));
  EXPECT_TRUE(pool_->Compile(kReturn, "k", target, &budget).ok());
}
}  // namespace
}  // namespace telegrad
