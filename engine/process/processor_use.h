// How long a process has had a processor and how long it has waited for one, so that a limit of
// time for what it does is fair on a machine that is busy with other things.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>

#include "absl/status/status.h"

namespace telegrad {

// Of the first thread of a process, as Linux counts it (Documentation/scheduler/sched-stats.rst,
// /proc/PID/schedstat).
struct ProcessorUse {
  std::chrono::nanoseconds ran{0};
  std::chrono::nanoseconds waited{0};  // for a processor, in waits that have ended
  bool runnable = false;               // it runs now, or waits for a processor
};

// All zero where the system does not say.
ProcessorUse ProcessorUseOf(pid_t process);

// What is left of `patience` with a process that was at `before` when its work began and is at
// `now`, `elapsed` later. The time in which it waited for a processor does not count, up to
// kMostPatience times the patience in all. Zero: it took too long.
inline constexpr int kMostPatience = 10;
std::chrono::nanoseconds PatienceLeft(const ProcessorUse& before, const ProcessorUse& now,
                                      std::chrono::nanoseconds elapsed,
                                      std::chrono::nanoseconds patience);

// Where times and uses come from; others are for tests.
struct PatienceSource {
  std::function<ProcessorUse(pid_t)> use = &ProcessorUseOf;
  std::function<std::chrono::nanoseconds()> now = [] {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
  };
};
// Waits with that patience for what a process does. `wait` returns DEADLINE_EXCEEDED where nothing
// has come within the time that it is given, and anything else is the end.
absl::Status WaitPatiently(pid_t process, std::chrono::nanoseconds patience,
                           const std::function<absl::Status(std::chrono::nanoseconds)>& wait,
                           const PatienceSource& source = {});

}  // namespace telegrad
