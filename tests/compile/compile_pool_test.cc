// The pool at work against fake workers, which also hang, exit and belong to another build, and
// against the real worker.
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

#include "absl/strings/match.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "engine/compile/worker_process.h"
#include "tests/compile/compile_pool_fixture.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

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

// The worker goes on, and the next attempt waits for it or finds what it has made.
TEST_F(CompilePoolTest, WhoseTimeIsUpFindsTheKernelWhenItTriesAgain) {
  Start(Options(1));
  for (const bool waits : {true, false}) {
    const std::string fifo = Fifo(waits ? "first" : "second"), asked = fifo + "_asked";
    const std::string text = StrCat("count ", asked, " ", fifo);
    absl::Status late;
    int64_t worked_ns = 0;
    while (!absl::StrContains(late.message(), "compiling kernel k")) {  // it had a worker
      Budget::Limits limits;
      limits.time = milliseconds(100);
      Budget budget(limits);
      late = pool_->Compile(text, "k", Target(), &budget).status();
      ASSERT_TRUE(absl::IsDeadlineExceeded(late)) << late << " " << waits;
      EXPECT_THAT(std::string(late.message()), HasSubstr("kernel k"));
      worked_ns = budget.worked_ns();
    }
    EXPECT_GT(worked_ns, 0);
    absl::StatusOr<std::string> again;
    std::thread other;
    if (waits) other = Beside(text, &again);
    const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (!waits) {
      while (pool_->stats().compiling > 0) std::this_thread::yield();
      other = Beside(text, &again);
    }
    other.join();
    close(reader);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, text);
    EXPECT_EQ(std::filesystem::file_size(asked), 1u) << "it was compiled again";
  }
  EXPECT_EQ(pool_->stats().deaths, 0u);
}

// What goes on after its job's time, and is not asked for again, is paid with the tenant's next
// kernel, and once.
TEST_F(CompilePoolTest, WhoseTimeIsUpPaysForWhatGoesOn) {
  Start(Options(1));
  const auto tenant = std::make_shared<const Share>("a"),
             other = std::make_shared<const Share>("b");
  const std::string fifo = Fifo("goes_on");
  absl::Status late;
  while (!absl::StrContains(late.message(), "compiling kernel k")) {  // it had a worker
    Budget::Limits limits;
    limits.time = milliseconds(100);
    Budget budget(limits);
    budget.SetShare(tenant);
    late = pool_->Compile(StrCat("count ", fifo, "_asked ", fifo), "k", Target(), &budget).status();
    ASSERT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  }
  using Clock = std::chrono::steady_clock;
  const auto on_until = Clock::now() + milliseconds(200);
  while (Clock::now() < on_until) std::this_thread::yield();
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  while (pool_->stats().compiling > 0) std::this_thread::yield();
  close(reader);
  // Of which it worked so long, and was waited for so long, at most.
  const auto compile = [&](const std::shared_ptr<const Share>& share) {
    Budget budget;
    budget.SetShare(share);
    const auto begin = Clock::now();
    EXPECT_TRUE(pool_->Compile("fine", "k", Target(), &budget).ok());
    return std::pair(std::chrono::nanoseconds(budget.worked_ns()), Clock::now() - begin);
  };
  const auto [others, others_took] = compile(other);
  EXPECT_LE(others, others_took);
  EXPECT_GE(compile(tenant).first, milliseconds(200));
  const auto [again, again_took] = compile(tenant);
  EXPECT_LE(again, again_took);
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
  // Where the file is, is for the operator, not for whoever wants something compiled.
  EXPECT_THAT(std::string(status.message()), HasSubstr("ask its operator"));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("telegrad-foreign-worker")));
  EXPECT_THAT(deaths(), ::testing::Contains(
                            AllOf(HasSubstr(options.executable), HasSubstr("restart the daemon"))));
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
