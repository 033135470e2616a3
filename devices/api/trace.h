// When the commands of a run began and ended. To trace a run, a caller passes one RunTrace with
// each of its submissions; a submission without one reads no clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/mutex.h"

namespace telegrad {

enum class CommandKind : uint8_t { kLaunch, kCopy };

// Nanoseconds of the steady clock, with which all times of this process can be compared.
int64_t SteadyNs();

struct TraceEvent {
  CommandKind kind = CommandKind::kLaunch;
  std::string name = {};   // the launch's; "copy" for a copy
  std::string queue = {};  // that ran it: "CPU:0 compute"
  int64_t begin_ns = 0;    // SteadyNs
  int64_t end_ns = 0;
  double bytes = 0;  // of a launch: as predicted
  double flops = 0;  // as predicted
};

// Thread-safe. Before its point is signaled, a submission adds an event for each command that ran,
// in the order of the commands, and for the one that failed.
class RunTrace {
 public:
  // `detailed`: false where only the time counts that devices took. Then no events are kept, and a
  // device may tell the time alone.
  explicit RunTrace(bool detailed = true) : detailed_(detailed) {}
  bool detailed() const { return detailed_; }
  void Add(std::vector<TraceEvent> events);
  void AddTime(int64_t ns) { ns_.fetch_add(ns, std::memory_order_relaxed); }
  // Submissions in the order in which they ended.
  std::vector<TraceEvent> events() const;
  // What all took together.
  int64_t ns() const { return ns_.load(std::memory_order_relaxed); }

 private:
  const bool detailed_;
  std::atomic<int64_t> ns_ = 0;
  mutable Mutex mutex_;
  std::vector<TraceEvent> events_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
