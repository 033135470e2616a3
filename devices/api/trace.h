// When the commands of a run began and ended. To trace a run, a caller passes one RunTrace with
// each of its submissions; a submission without one reads no clock.
#pragma once

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
  // `detailed`: false where only the time counts that devices took, which a device may then tell in
  // one event for many commands.
  explicit RunTrace(bool detailed = true) : detailed_(detailed) {}
  bool detailed() const { return detailed_; }
  void Add(std::vector<TraceEvent> events);
  // Submissions in the order in which they ended.
  std::vector<TraceEvent> events() const;

 private:
  const bool detailed_;
  mutable Mutex mutex_;
  std::vector<TraceEvent> events_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
