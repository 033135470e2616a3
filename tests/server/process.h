// For tests only: programs of ours as child processes.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

extern char** environ;

namespace telegrad::testing {

struct Output {
  int exit_code = -1;
  std::string text;
};

// A child process with its stdout and stderr in a pipe.
class Process {
 public:
  Process(const std::string& program, std::vector<std::string> args) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    args.insert(args.begin(), program);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, program.c_str(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    if (reader_.joinable()) reader_.join();
    fclose(out_);
  }

  // Reads up to the line that begins with `prefix`; its rest. Empty if the output ends before.
  std::string Line(std::string_view prefix) {
    char line[4096];
    while (fgets(line, sizeof(line), out_) != nullptr) {
      std::string_view text(line);
      text_ += text;
      if (text.starts_with(prefix)) {
        return std::string(text.substr(prefix.size(), text.size() - prefix.size() - 1));
      }
    }
    return "";
  }
  // Keeps the pipe empty from now on.
  void ReadOn() {
    reader_ = std::thread([this] {
      char line[4096];
      while (fgets(line, sizeof(line), out_) != nullptr) text_ += line;
    });
  }
  pid_t pid() const { return pid_; }
  // Its resident memory, in bytes.
  int64_t Resident() const {
    std::ifstream in("/proc/" + std::to_string(pid_) + "/statm");
    int64_t size = 0, resident = 0;
    in >> size >> resident;
    return resident * getpagesize();
  }
  // The most that it ever was.
  int64_t PeakResident() const {
    std::ifstream in("/proc/" + std::to_string(pid_) + "/status");
    int64_t kilobytes = 0;
    for (std::string word; in >> word;) {
      if (word == "VmHWM:") in >> kilobytes;
    }
    return kilobytes * 1024;
  }
  void Signal(int number) { kill(pid_, number); }
  // SIGSTOP, until all of its threads stand still: the signal itself only asks for that.
  void Stop() {
    Signal(SIGSTOP);
    siginfo_t info;
    waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOWAIT);
  }
  // Waits for its end.
  Output Wait() {
    if (reader_.joinable()) {
      reader_.join();
    } else {
      char line[4096];
      while (fgets(line, sizeof(line), out_) != nullptr) text_ += line;
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text_};
  }

 private:
  pid_t pid_ = 0;
  FILE* out_ = nullptr;
  std::string text_;
  std::thread reader_;
};

inline Output RunProgram(const std::string& program, const std::vector<std::string>& args) {
  return Process(program, args).Wait();
}

}  // namespace telegrad::testing
