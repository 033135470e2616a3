// Runs the submissions of one queue: puts their commands on a command queue of the OpenCL
// driver, a batch at a time, and waits for their end.
#pragma once

#include <memory>
#include <span>

#include "devices/api/command_list.h"
#include "devices/api/host_queue.h"
#include "devices/opencl/context.h"
#include "devices/opencl/memory.h"

namespace telegrad::opencl {

class Runner final : public QueueRunner {
 public:
  Runner(std::shared_ptr<Context> context, std::unique_ptr<CommandQueue> queue)
      : context_(std::move(context)), queue_(std::move(queue)) {}

  absl::Status Check(const CommandBuffer* commands,
                     std::span<const BufferView> bindings) const override;
  absl::Status Run(const CommandBuffer& commands, std::span<const BufferView> bindings,
                   const RunControl& control) override;
  absl::Status Health() const override { return context_->health(); }

 private:
  // Null for memory that is not this device's.
  const OpenClMemory* Own(const BufferView& view) const;
  absl::Status Put(const Command& command, std::span<const BufferView> bindings,
                   std::span<const uint64_t> scalars);
  absl::Status PutLaunch(const Launch& launch, std::span<const BufferView> bindings,
                         std::span<const uint64_t> scalars);
  absl::Status PutCopy(const CopyBytes& copy, std::span<const BufferView> bindings);
  absl::Status Await();

  const std::shared_ptr<Context> context_;
  const std::unique_ptr<CommandQueue> queue_;
  int waiting_ = 0;  // commands on the queue that nobody has waited for
};

}  // namespace telegrad::opencl
