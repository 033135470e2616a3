// The parent gives each child a batch of cases and reads one record for each finished case from a
// pipe: its length, then its text. If a child exits, or sends nothing for too long, its current
// case has failed, and another child takes the rest of its batch.
#include "tests/onnx/sweep.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <utility>

#include "engine/base/status.h"

namespace telegrad::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBatch = 64;
constexpr size_t kMaxMessage = 4000;

struct Batch {
  size_t begin = 0, end = 0;
};

struct Child {
  pid_t pid = 0;
  int fd = -1;
  Batch batch;  // what it has not finished; the first is what it is at
  Clock::time_point deadline;
  std::string received;
};

bool WriteAll(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, data, size);
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

[[noreturn]] void RunChild(int fd, Batch batch, const std::function<std::string()>& opened,
                           const std::function<std::string(size_t)>& run) {
  const std::string error = opened();
  for (size_t i = batch.begin; i < batch.end; ++i) {
    std::string text = (error.empty() ? run(i) : error).substr(0, kMaxMessage);
    std::ranges::replace(text, '\n', ' ');
    const auto size = static_cast<uint32_t>(text.size());
    if (!WriteAll(fd, reinterpret_cast<const char*>(&size), sizeof size) ||
        !WriteAll(fd, text.data(), text.size())) {
      break;
    }
  }
  _exit(0);
}

class Parent {
 public:
  Parent(size_t count, const SweepOptions& options, const std::function<std::string()>& opened,
         const std::function<std::string(size_t)>& run)
      : options_(options), opened_(opened), run_(run), results_(count) {
    for (size_t i = 0; i < count; i += kBatch) waiting_.push_back({i, std::min(i + kBatch, count)});
  }

  std::vector<CaseResult> Run() {
    while (true) {
      while (!waiting_.empty() && children_.size() < static_cast<size_t>(options_.jobs)) {
        const Batch batch = waiting_.front();
        waiting_.pop_front();
        Start(batch);
      }
      if (children_.empty()) return std::move(results_);
      Wait();
    }
  }

 private:
  Clock::time_point Deadline() const {
    return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1e3));
  }

  void Start(Batch batch) {
    int fds[2];
    const bool piped = pipe(fds) == 0;
    const pid_t pid = piped ? fork() : -1;
    if (pid == 0) {
      close(fds[0]);
      RunChild(fds[1], batch, opened_, run_);
    }
    if (piped) close(fds[1]);
    if (pid < 0) {
      if (piped) close(fds[0]);
      for (size_t i = batch.begin; i < batch.end; ++i) results_[i].message = "no process: fork";
      return;
    }
    children_.push_back({pid, fds[0], batch, Deadline(), {}});
  }

  void Wait() {
    std::vector<pollfd> polled;
    Clock::time_point first = Clock::time_point::max();
    for (const Child& child : children_) {
      polled.push_back({child.fd, POLLIN, 0});
      first = std::min(first, child.deadline);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(first - Clock::now());
    poll(polled.data(), polled.size(),
         static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 60'000)));
    for (size_t i = children_.size(); i-- > 0;) {
      const bool alive = polled[i].revents == 0 || Receive(&children_[i]);
      if (alive && Clock::now() < children_[i].deadline) continue;
      End(&children_[i], alive);
      children_.erase(children_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  // False at the end of the pipe.
  bool Receive(Child* child) {
    char buffer[4096];
    const ssize_t n = read(child->fd, buffer, sizeof buffer);
    if (n <= 0) return false;
    std::string& received = child->received;
    received.append(buffer, static_cast<size_t>(n));
    uint32_t size = 0;
    while (received.size() >= sizeof size) {
      std::copy_n(received.data(), sizeof size, reinterpret_cast<char*>(&size));
      if (received.size() < sizeof size + size) break;
      results_[child->batch.begin++] = {size == 0, received.substr(sizeof size, size)};
      received.erase(0, sizeof size + size);
      child->deadline = Deadline();
    }
    return true;
  }

  void End(Child* child, bool timed_out) {
    kill(child->pid, SIGKILL);
    int state = 0;
    waitpid(child->pid, &state, 0);
    close(child->fd);
    Batch& rest = child->batch;
    if (rest.begin == rest.end) return;
    results_[rest.begin++].message =
        timed_out            ? StrCat("timed out after ", options_.timeout_s, " s")
        : WIFSIGNALED(state) ? StrCat("crashed: ", strsignal(WTERMSIG(state)))
                             : StrCat("ended with exit code ", WEXITSTATUS(state));
    if (rest.begin < rest.end) waiting_.push_front(rest);
  }

  const SweepOptions& options_;
  const std::function<std::string()>& opened_;
  const std::function<std::string(size_t)>& run_;
  std::vector<CaseResult> results_;
  std::deque<Batch> waiting_;
  std::vector<Child> children_;
};

}  // namespace

std::vector<CaseResult> Sweep(size_t count, const SweepOptions& options,
                              const std::function<std::string()>& opened,
                              const std::function<std::string(size_t)>& run) {
  return Parent(count, options, opened, run).Run();
}

}  // namespace telegrad::testing
