// What becomes of kernels when workers crash, exit, or are killed from outside: as they start,
// between kernels and with a kernel.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>

#include <algorithm>
#include <atomic>
#include <fstream>

#include "tests/compile/compile_pool_fixture.h"

namespace telegrad {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_THAT(std::string(killed.message()), HasSubstr("its log says why"));
  EXPECT_THAT(deaths().back(), HasSubstr("signal 9"));
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

}  // namespace
}  // namespace telegrad
