// Encoded commands for a worker: checked like those of other devices, with the place that each
// needs in the ring.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/command_list.h"
#include "devices/cpu/launch_cost.h"
#include "devices/worker/worker_slot.h"

namespace telegrad {

class WorkerMemory final : public Memory {
 public:
  // `used`: of its device, from which it is taken when it goes.
  WorkerMemory(std::shared_ptr<Arena> arena, std::shared_ptr<std::atomic<int64_t>> used, void* at,
               int64_t size)
      : Memory(at, size), arena_(std::move(arena)), used_(std::move(used)) {}
  ~WorkerMemory() override {
    arena_->Free(host(), size());
    used_->fetch_sub(size());
  }
  const Arena& arena() const { return *arena_; }

 private:
  const std::shared_ptr<Arena> arena_;
  const std::shared_ptr<std::atomic<int64_t>> used_;
};

class WorkerCommands final : public CommandList {
 public:
  // INVALID_ARGUMENT names the command that is malformed, holds a program of another device, or has
  // more arguments than a record.
  static absl::StatusOr<std::shared_ptr<const WorkerCommands>> Encode(
      std::shared_ptr<WorkerSlot> slot, const void* device, int threads,
      std::vector<Command> commands);

  // As CommandList, and whether the host can address them, and the worker those of launches.
  absl::Status Check(std::span<const BufferView> bindings) const;
  // Whether running it takes less than waking a thread for it.
  bool quick(std::span<const uint64_t> scalars) const { return times_.quick(scalars); }

  // Has the worker load the programs that it does not have.
  absl::Status LoadInto(DeviceWorker& worker) const;
  // Runs everything, in order; see QueueRunner.
  absl::Status Run(std::span<const BufferView> bindings, const RunControl& control) const;

 private:
  class Running;

  std::shared_ptr<WorkerSlot> slot_;
  std::vector<std::shared_ptr<const WorkerProgram>> programs_;  // by command; null for a copy
  PredictedTimes times_;
  int threads_ = 1;
  mutable std::weak_ptr<DeviceWorker> loaded_in_;  // of the queue's thread at hand: has them all
};

}  // namespace telegrad
