// Run: is handed to the queue of its device at once; what follows goes on. Before a graph's first
// run it is compiled on a thread for that, and what follows waits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/execution/executable.h"
#include "engine/types/var_value.h"
#include "server/pool/session_queues.h"
#include "server/session/operation.h"

namespace telegrad {

struct RunOp {
  std::string hash;
  std::vector<uint64_t> handles;
  bool quiet = false;
  bool trace = false;
  std::vector<VarValue> variables = {};
  std::vector<std::string> devices =
      {};                              // by the graph's numbers; "": as the slots or the server say
  int64_t timeout_ms = 0;              // from its arrival; 0: none
  std::vector<uint64_t> offsets = {};  // by slot; empty: the whole buffers are bound
  Priority priority = Priority::kNormal;
  bool search = false;  // its kernels are to be searched for
};
// The device events of one run, with descriptions of its kernels.
struct TracedRun {
  RunTrace trace;
  std::shared_ptr<const Executable> executable;
  int64_t submitted_ns = 0, ended_ns = 0;  // SteadyNs
  int64_t most_events = 0;                 // that the answer tells
};
struct RunResult {
  bool cached = false;
  uint32_t kernels = 0;
  uint64_t device_ns = 0;
  uint64_t compile_ns = 0;
  std::shared_ptr<const TracedRun> traced;  // null unless it was asked for

  // The trace is sent only once.
  bool kept_whole() const { return traced == nullptr; }
  std::optional<RunResult> Kept() const {
    RunResult kept = *this;
    kept.traced = nullptr;
    return kept;
  }
};

std::unique_ptr<Action> MakeAction(RunOp op);

}  // namespace telegrad
