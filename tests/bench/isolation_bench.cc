// What a worker process adds to a run with nothing to compute: one kernel of one element, submitted
// to a processor of this process or of a worker, and awaited. What that is compared with is a byte
// that goes to another process and back over a pair of sockets. Prints the median microseconds as
// its last line.
//
// And how long it takes until a run works again after the worker was killed, or was stopped as if
// it hung, every other time while a run was on its way there: the milliseconds from the signal to
// the end of the first run that succeeds. Of a worker that hangs, the time until that is noticed is
// part of it. Prints the median and the longest, and the one that is asked for as its last line.
//
// Usage: isolation_bench cpu|worker|sockets spinning|idle RUNS    idle: 5 ms after the run before
//        isolation_bench killed|hung median|longest ENDS
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "devices/cpu/cpu_device.h"
#include "devices/worker/worker_device.h"
#include "engine/base/status.h"
#include "engine/compile/compiler.h"
#include "tests/bench/timing.h"

namespace telegrad::bench {
namespace {

constexpr char kNext[] =
    "define void @next(ptr %buffers, i64 %begin, i64 %end) \"telegrad-parameters\"=\"buffer\" {\n"
    "  %b = load ptr, ptr %buffers\n  %x = load i64, ptr %b\n  %y = add i64 %x, 1\n"
    "  store i64 %y, ptr %b\n  ret void\n}\n";

// Adds 1 to a word.
absl::StatusOr<std::shared_ptr<const CommandBuffer>> Next(Device& device) {
  TG_ASSIGN_OR_RETURN(const ProgramImage image, Compile(kNext, "next", HostTarget(1)));
  Command next;
  TG_ASSIGN_OR_RETURN(next.launch.program, device.Load(image));
  next.launch.arguments = {{0, 0}};
  return device.Encode({next});
}

absl::StatusOr<double> MedianRun(Device& device, bool idle, int runs) {
  TG_ASSIGN_OR_RETURN(const auto commands, Next(device));
  TG_ASSIGN_OR_RETURN(const auto memory, device.Alloc(8));
  std::vector<double> micros;
  for (int i = 0; i < runs + 10; ++i) {
    // What is measured is the time after a pause, which only a clock can make.
    if (idle) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double start = Seconds();
    TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                        device.queue().Submit(commands, {{memory, 0, 8}}, {}));
    TG_RETURN_IF_ERROR(point.Wait());
    if (i >= 10) micros.push_back((Seconds() - start) * 1e6);
  }
  if (*static_cast<int64_t*>(memory->host()) != runs + 10) return Internal("a wrong result");
  return Median(std::move(micros));
}

// Runs succeed again once there is another worker; until then each fails at once.
absl::StatusOr<double> UntilARunWorks(int how, int ends, bool longest) {
  std::atomic<pid_t> worker{0};  // the last that has started
  TG_ASSIGN_OR_RETURN(const auto device,
                      OpenWorkerDevice({.cpu = {.threads = 2, .memory_limit = int64_t{64} << 20},
                                        .executable = DEVICE_WORKER,
                                        .on_event = [&](const WorkerEvent& event) {
                                          if (event.pid != 0) worker = event.pid;
                                        }}));
  TG_ASSIGN_OR_RETURN(const auto commands, Next(*device));
  TG_ASSIGN_OR_RETURN(const auto memory, device->Alloc(8));
  const auto submit = [&] { return device->queue().Submit(commands, {{memory, 0, 8}}, {}); };
  std::vector<double> millis;
  for (int i = 0; i < ends; ++i) {
    TG_ASSIGN_OR_RETURN(const TimelinePoint before, submit());
    TG_RETURN_IF_ERROR(before.Wait());
    while (worker == 0) std::this_thread::yield();  // it is told a moment after it is there
    absl::StatusOr<TimelinePoint> under_way = before;
    if (i % 2 == 1) under_way = submit();
    const double start = Seconds();
    if (kill(worker.exchange(0), how) != 0) return Internal("the worker had ended by itself");
    if (under_way.ok()) (void)under_way->Wait();
    while (true) {
      const auto point = submit();
      // The run that was under way may have ended before the signal: what counts is one of another
      // worker.
      if (point.ok() && point->Wait().ok() &&
          device->generation() == static_cast<uint64_t>(i) + 2) {
        break;
      }
      std::this_thread::yield();
    }
    millis.push_back((Seconds() - start) * 1e3);
  }
  const double most = *std::ranges::max_element(millis), median = Median(std::move(millis));
  std::printf("median %.1f ms, longest %.1f ms of %d\n", median, most, ends);
  return longest ? most : median;
}

absl::StatusOr<double> MedianRoundTrip(bool idle, int runs) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return Internal("no pair of sockets");
  const pid_t child = fork();
  if (child < 0) return Internal("no process");
  char byte = 1;
  if (child == 0) {
    close(ends[0]);
    while (read(ends[1], &byte, 1) == 1 && write(ends[1], &byte, 1) == 1) {
    }
    _exit(0);
  }
  close(ends[1]);
  std::vector<double> micros;
  bool good = true;
  for (int i = 0; i < runs + 10 && good; ++i) {
    // The same pause as above.
    if (idle) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double start = Seconds();
    good = write(ends[0], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1;
    if (i >= 10) micros.push_back((Seconds() - start) * 1e6);
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  if (!good) return Internal("the other process has ended");
  return Median(std::move(micros));
}

absl::StatusOr<double> MeasureOn(const std::string& where, const std::string& when, int runs) {
  const bool idle = when == "idle";
  if (where == "sockets") return MedianRoundTrip(idle, runs);
  if (where == "killed") return UntilARunWorks(SIGKILL, runs, when == "longest");
  if (where == "hung") return UntilARunWorks(SIGSTOP, runs, when == "longest");
  const CpuOptions cpu{.threads = 2, .memory_limit = int64_t{64} << 20};
  if (where == "cpu") {
    TG_ASSIGN_OR_RETURN(const auto device, OpenCpu(cpu));
    return MedianRun(*device, idle, runs);
  }
  TG_ASSIGN_OR_RETURN(const auto device,
                      OpenWorkerDevice({.cpu = cpu, .executable = DEVICE_WORKER}));
  return MedianRun(*device, idle, runs);
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  const int runs = argc == 4 ? std::atoi(argv[3]) : 0;
  if (runs <= 0) {
    std::fprintf(stderr,
                 "Usage: isolation_bench cpu|worker|sockets spinning|idle RUNS\n"
                 "       isolation_bench killed|hung median|longest ENDS\n");
    return 2;
  }
  const auto result = telegrad::bench::MeasureOn(argv[1], argv[2], runs);
  if (!result.ok()) {
    std::fprintf(stderr, "isolation_bench: %s\n", result.status().ToString().c_str());
    return 1;
  }
  std::printf("%.4f\n", *result);
  return 0;
}
