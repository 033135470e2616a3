// Commands as the CPU's queues run them: one flat list of steps and one flat patch table of their
// arguments, which a run fills in from its bindings before the first step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/command_list.h"
#include "devices/cpu/launch_cost.h"
#include "devices/cpu/launch_watch.h"
#include "devices/cpu/worker_pool.h"

namespace telegrad {

class CpuCommandBuffer : public CommandList {
 public:
  // INVALID_ARGUMENT names the command that is malformed or holds a program of another device.
  static absl::StatusOr<std::shared_ptr<const CpuCommandBuffer>> Encode(
      std::vector<Command> commands, int threads);

  // As CommandList, and whether the host can address them.
  absl::Status Check(std::span<const BufferView> bindings) const;

  // Whether running it takes less than waking a thread for it.
  bool quick() const { return micros_ < kQuickMicros; }

  // Where a run keeps its addresses; to be reused.
  struct Scratch {
    std::vector<char*> bases;      // of the bindings
    std::vector<void*> arguments;  // of all steps
  };

  // Runs everything, in order. `bindings` passed Check; for `control` see QueueRunner.
  absl::Status Run(std::span<const BufferView> bindings, WorkerPool& pool, LaunchWatch& watch,
                   Scratch* scratch, const RunControl& control) const;

 private:
  struct Step {
    WorkerPool::Body entry = nullptr;  // null: copies `amount` bytes from argument 1 to argument 0
    int64_t first = 0;                 // its arguments in patches_
    int64_t begin = 0;                 // the first iteration
    int64_t amount = 0;                // iterations or bytes
    int helpers = 0;                   // workers worth waking
  };

  absl::Status AddStep(const Command& command, int threads);
  static bool RunStep(const Step& step, void* const* arguments, WorkerPool& pool);

  std::vector<Step> steps_;  // one for each command
  std::vector<Launch::Argument> patches_;
  double micros_ = 0;  // predicted, on one thread
};

}  // namespace telegrad
