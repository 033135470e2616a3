// A compile worker for tests: it does what the text of a kernel, or a file called "orders" in
// its folder, says, such as crash, hang or answer wrongly. Called telegrad-silent-worker it
// sends no greeting, as telegrad-chatty-worker a wrong one, and as telegrad-foreign-worker that
// of another build. Before its greeting it is killed as many times as the file "killed_starts" in
// its folder has bytes, exits as many times as "failed_starts" has, and waits for whoever has
// locked "gate", which the file "gate_reached" tells.
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/base/strings.h"
#include "engine/compile/worker_protocol.h"
#include "engine/process/child_process.h"
#include "engine/process/frame.h"

namespace telegrad {
namespace {

void Raw(const std::string& bytes) { send(kChildSocket, bytes.data(), bytes.size(), 0); }

// Waits at a FIFO for another process: both open it, each for its own direction.
void Meet(const std::string& fifo, int flags) { close(open(fifo.c_str(), flags)); }

// Whether the file had a byte to take away.
bool TakeByte(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  flock(file, LOCK_EX);
  const off_t bytes = lseek(file, 0, SEEK_END);
  const bool taken = bytes > 0 && ftruncate(file, bytes - 1) == 0;
  close(file);
  return taken;
}

void WaitAt(const std::string& gate) {
  const int file = open(gate.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  std::ofstream(gate + "_reached") << "x";
  flock(file, LOCK_SH);
  close(file);
}

// Whether the file, which has another byte then, had fewer.
bool AddByte(const std::string& path, int most) {
  const int file = open(path.c_str(), O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
  const bool added = lseek(file, 0, SEEK_END) < most && ::write(file, "x", 1) == 1;
  close(file);
  return added;
}

[[noreturn]] void Crash(int number) {
  std::fprintf(stderr, "what a crash says\n");
  signal(number, SIG_DFL);  // which a sanitizer has taken
  raise(number);
  _exit(99);
}

// Open descriptors, the one that lists them left out.
std::string Descriptors() {
  std::string out;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const std::string name(entry->d_name);
    if (name[0] != '.' && name != StrCat(dirfd(folder))) StrAppend(&out, name, " ");
  }
  closedir(folder);
  return out;
}

std::string Limits() {
  rlimit core{}, memory{};
  getrlimit(RLIMIT_CORE, &core);
  getrlimit(RLIMIT_AS, &memory);
  return StrCat(core.rlim_max, " ", memory.rlim_max);
}

std::string Signals() {
  sigset_t mask;
  sigprocmask(SIG_SETMASK, nullptr, &mask);
  struct sigaction pipe{};
  sigaction(SIGPIPE, nullptr, &pipe);
  return StrCat(sigismember(&mask, SIGTERM), " ", pipe.sa_handler == SIG_DFL, " ",
                getpgrp() == getpid());
}

std::string Answer(uint64_t id, const std::string& binary) {
  return Encode(WorkerAnswer{id, ProgramImage{.name = "fake", .binary = binary}});
}

// What a request asks for is the first word; more words are its arguments.
std::string Obey(WorkerRequest& request, const std::string& folder) {
  std::ifstream orders(folder + "/orders");
  if (orders) std::getline(orders, request.source);
  std::istringstream words(request.source);
  std::string what, first;
  words >> what >> first;
  if (what == "segfault") Crash(SIGSEGV);
  if (what == "abort") Crash(SIGABRT);
  if (what == "nice") return Answer(request.id, StrCat(getpriority(PRIO_PROCESS, 0)));
  if (what == "exit") _exit(7);
  if (what == "hang") pause();
  if (what == "starts") {  // a process of its own, and waits for it
    const pid_t child = fork();
    if (child == 0) {
      close(kChildSocket);
      pause();
    }
    std::ofstream(first) << child << std::endl;
    pause();
  }
  if (what == "once") {  // crashes unless somebody was here before
    const int mark = open(first.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0600);
    if (mark >= 0) Crash(SIGSEGV);
  }
  if (what == "count") {  // how often it is asked, by bytes of a file
    std::string fifo;
    words >> fifo;
    AddByte(first, INT_MAX);
    Meet(fifo, O_WRONLY);
  }
  int times = 0;
  words >> times;
  if (what == "killed" || what == "torn" || what == "slow") {  // until the file has as many bytes
    const bool ends = AddByte(first, times);
    if (ends && what == "torn") Raw(std::string("TGRF\x40\0\0\0", 8) + std::string(40, 'x'));
    if (ends && what == "slow") {  // to end: the socket is closed and the process is still there
      close(kChildSocket);
      pause();
    }
    if (ends) raise(SIGKILL);
  }
  if (what == "held") {  // the first time, by a file with its number
    const int mark = open(first.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (mark >= 0) {
      const std::string pid = StrCat(getpid(), "\n");
      if (::write(mark, pid.data(), pid.size()) > 0) pause();
    }
  }
  if (what == "write") Meet(first, O_WRONLY);
  if (what == "read") Meet(first, O_RDONLY);
  if (what == "error") return Encode(WorkerAnswer{request.id, absl::InternalError("no such op")});
  if (what == "other") return Answer(request.id + 1, "other");
  if (what == "text") return "neither an answer nor anything else";
  if (what == "nothing") return "";
  if (what == "descriptors") return Answer(request.id, Descriptors());
  if (what == "limits") return Answer(request.id, Limits());
  if (what == "signals") return Answer(request.id, Signals());
  if (what == "environment") return Answer(request.id, getenv("HOME") == nullptr ? "none" : "HOME");
  if (what == "pid") return Answer(request.id, StrCat(getpid()));
  return Answer(request.id, request.source);
}

int Serve(const std::string& name) {
  const std::string folder = name.substr(0, name.rfind('/'));
  if (TakeByte(folder + "/killed_starts")) raise(SIGKILL);
  if (TakeByte(folder + "/failed_starts")) return 7;
  WaitAt(folder + "/gate");
  if (name.ends_with("silent-worker")) pause();
  if (name.ends_with("chatty-worker")) Raw("HTTP/1.1 400 Bad Request\r\n\r\n and forty bytes more");
  std::string identity = "fake";
  if (name.ends_with("foreign-worker")) identity = StrCat("fake ", getpid());
  if (!WriteFrame(kChildSocket, Encode(WorkerHello{kWorkerProtocol, identity})).ok()) return 1;
  while (true) {
    const auto frame = ReadFrame(kChildSocket, kMaxRequestBytes);
    if (!frame.ok()) return 0;
    auto request = DecodeRequest(*frame);
    if (!request.ok()) return 1;
    const std::string answer = Obey(*request, folder);
    if (request->source == "checksum") {
      Raw(std::string("TGRF\4\0\0\0", 8) + std::string(32, 'x') + "abcd");
    } else if (request->source == "endless") {
      Raw(std::string("TGRF\xff\xff\xff\xff", 8) + std::string(32, 'x'));
    } else if (request->source == "half") {
      Raw(std::string("TGRF\x40\0\0\0", 8) + std::string(40, 'x'));
      return 0;
    } else if (!WriteFrame(kChildSocket, answer).ok()) {
      return 1;
    }
    if (request->source == "more") Raw("and one more thing");
    if (request->source == "bye") return 0;
    if (request->source == "dies") raise(SIGKILL);
  }
}

}  // namespace
}  // namespace telegrad

int main(int, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  return telegrad::Serve(argv[0]);
}
