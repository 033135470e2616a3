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
  bool quick(std::span<const uint64_t> scalars) const { return times_.quick(scalars); }

  // Where a run keeps its addresses; to be reused.
  struct Scratch {
    std::vector<uint64_t> bases;  // 0 for constants, the scalars, and the bindings
    std::vector<uint64_t> words;  // arguments of all steps
    std::vector<HostTensorMap> maps;
  };

  // Runs everything, in order. `bindings` passed Check; for `control` see QueueRunner.
  absl::Status Run(std::span<const BufferView> bindings, WorkerPool& pool, LaunchWatch& watch,
                   Scratch* scratch, const RunControl& control) const;

 private:
  struct Step {
    WorkerPool::Body entry = nullptr;  // null: copies `amount` bytes from argument 1 to argument 0
    int64_t first = 0;                 // its arguments in patches_
    int64_t begin = 0;                 // the first workgroup
    int64_t amount = 0;                // workgroups or bytes
  };

  absl::Status AddStep(const Command& command);
  static bool RunStep(const Step& step, const uint64_t* words, int helpers, WorkerPool& pool);

  // A word of an argument: what is added to a base of the run.
  struct Patch {
    uint32_t base = 0;
    uint64_t add = 0;
  };
  Patch PatchOf(const BoundPart& part) const;
  Patch PatchOf(const LaunchArgument& argument) const;

  std::vector<Step> steps_;  // one for each command
  std::vector<Patch> patches_;
  // Words that are the address of a map, once it has the address of the tensor, which they are
  // patched with.
  struct Map {
    size_t word = 0;
    const TensorMap* map = nullptr;  // of the commands
  };
  std::vector<Map> maps_;
  PredictedTimes times_;
  int threads_ = 1;
};

}  // namespace telegrad
