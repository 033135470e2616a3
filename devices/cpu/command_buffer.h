// Commands as the queue runs them: one flat list of steps, one flat table of arguments.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/cpu/worker_pool.h"

namespace telegrad {

class CpuCommandBuffer : public CommandBuffer {
 public:
  // INVALID_ARGUMENT names the command that is malformed or holds a program of another device.
  static absl::StatusOr<std::shared_ptr<const CpuCommandBuffer>> Encode(
      std::vector<Command> commands, int threads);

  // Whether `bindings` are as many and as long as the commands need, and addressable.
  absl::Status Check(std::span<const BufferView> bindings) const;

  // Runs everything, in order. `bindings` passed Check; `scratch` is space to reuse.
  void Run(std::span<const BufferView> bindings, WorkerPool& pool,
           std::vector<void*>* scratch) const;

 private:
  struct Step {
    WorkerPool::Body entry =
        nullptr;        // null: a copy of `amount` bytes from argument 1 to argument 0
    int64_t first = 0;  // its arguments in arguments_
    int64_t arguments = 0;
    int64_t amount = 0;  // iterations or bytes
    int64_t begin = 0;   // the first iteration
    int helpers = 0;     // workers worth waking
  };

  absl::Status Add(const Launch& launch, int threads);
  absl::Status Add(const CopyBytes& copy);
  absl::Status AddArgument(const Launch::Argument& argument, int64_t length);
  static void* Resolve(const Launch::Argument& argument, std::span<const BufferView> bindings);

  std::vector<Step> steps_;
  std::vector<Launch::Argument> arguments_;
  std::vector<int64_t> needed_;  // bytes of each binding
  std::vector<std::shared_ptr<LoadedProgram>> programs_;
};

}  // namespace telegrad
