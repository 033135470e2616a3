// How children are ended, also one that the system does not end.
#include "engine/process/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace telegrad {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<ChildProcess> Start(const std::string& script, std::chrono::milliseconds limit) {
  auto child = ChildProcess::Start(
      {.executable = "/bin/sh", .arguments = {"-c", script}, .bury_limit = limit});
  EXPECT_TRUE(child.ok()) << child.status();
  return child.ok() ? *std::move(child) : nullptr;
}

TEST(ChildProcess, SaysHowItEnded) {
  const auto child = Start("echo its last words >&2; exit 7", std::chrono::seconds(60));
  while (!child->HasEnded()) std::this_thread::yield();
  EXPECT_EQ(child->Bury(), "ended with exit code 7, its last output: its last words");
  EXPECT_EQ(ChildProcess::ReapUnended(), 0u);
}

// A process that attends to another with ptrace and is not its parent is told of its end first, and
// as long as it does not look, the parent waits in vain: as for a process that is in a wait of the
// kernel which no signal ends.
class Tracer {
 public:
  explicit Tracer(pid_t traced) {
    int ready[2];
    EXPECT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const char good = ptrace(PTRACE_SEIZE, traced, nullptr, nullptr) == 0 ? 1 : 0;
      (void)!write(ready[1], &good, 1);
      while (true) pause();
    }
    close(ready[1]);
    char good = 0;
    traces_ = read(ready[0], &good, 1) == 1 && good == 1;
    close(ready[0]);
  }
  ~Tracer() { End(); }
  void End() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  bool traces() const { return traces_; }

 private:
  pid_t pid_ = 0;
  bool traces_ = false;
};

TEST(ChildProcess, OneThatTheSystemDoesNotEndIsNotAwaited) {
  const auto child = Start("read line <&3", std::chrono::milliseconds(30));
  Tracer tracer(child->pid());
  if (!tracer.traces()) GTEST_SKIP() << "this user may not trace a process";
  EXPECT_THAT(child->Bury(), HasSubstr("was killed, but the system has not ended it yet"));
  EXPECT_EQ(ChildProcess::ReapUnended(), 1u);
  char byte;
  EXPECT_EQ(read(child->socket(), &byte, 1), 0) << "whoever reads from it goes on";
  EXPECT_EQ(kill(child->pid(), 0), 0) << "its number is not given to another";
  tracer.End();
  while (ChildProcess::ReapUnended() != 0) std::this_thread::yield();
  EXPECT_NE(kill(child->pid(), 0), 0);
  EXPECT_EQ(errno, ESRCH);
}

}  // namespace
}  // namespace telegrad
