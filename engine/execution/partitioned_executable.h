// An executable over several devices: the parts of a partition, each an executable of its device,
// and the transfers between them. A run submits every step at once, part to the compute queue of
// its device and transfer to a copy queue, with the points that it waits for; nothing waits on the
// host. A step that fails fails what depends on it, and so the run.
//
// Of a partition for all values of its variables there is one for each run: its parts and the
// lengths of its transfers are those for the values, and all else is the plan's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/execution/executable.h"
#include "engine/execution/partitioned_plan.h"
#include "engine/schedule/partition.h"
#include "engine/types/var_value.h"

namespace telegrad {

class PartitionedExecutable final : public Executable {
 public:
  // `parts` are by step, null for a transfer. `values`, sorted, are those of the variables, and the
  // parts are for them; none where the partition has none. RESOURCE_EXHAUSTED: temporaries and
  // transfers would not fit on a device.
  static absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> Create(
      std::shared_ptr<const PartitionedPlan> plan,
      std::vector<std::shared_ptr<const Executable>> parts, std::span<const VarValue> values);

  const std::shared_ptr<const PartitionedPlan>& plan() const { return plan_; }
  const Partition& partition() const { return plan_->partition(); }
  // By device: bytes that transfers were told to send so far, by runs with any values.
  std::vector<int64_t> BytesSent() const { return plan_->BytesSent(); }

  std::span<const SlotUse> slots() const override { return plan_->slots(); }
  std::span<const KernelInfo> kernels() const override { return kernels_->infos; }
  RunCost cost() const override { return cost_; }
  std::vector<const Device*> value_devices() const override;
  int64_t kept_bytes() const override;

 private:
  PartitionedExecutable(std::shared_ptr<const PartitionedPlan> plan,
                        std::vector<std::shared_ptr<const Executable>> parts)
      : plan_(std::move(plan)), parts_(std::move(parts)) {}

  absl::Status Bind(std::span<const VarValue> values);
  absl::StatusOr<TimelinePoint> Submit(size_t step, std::span<const BufferView> bindings,
                                       const PartitionedPlan::Buffers& buffers,
                                       std::span<const TimelinePoint> waits,
                                       const std::shared_ptr<RunTrace>& trace,
                                       const std::shared_ptr<const Cancellation>& cancel,
                                       RunQueues& queues) const;
  // A queue that is full in the middle of a run fails the run: what was submitted cannot be taken
  // back.
  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override;

  const std::shared_ptr<const PartitionedPlan> plan_;
  const std::vector<std::shared_ptr<const Executable>> parts_;               // by step
  std::vector<std::shared_ptr<const PartitionedPlan::Transfer>> transfers_;  // by step
  std::shared_ptr<const PartitionedPlan::Kernels> kernels_;
  RunCost cost_;
};

}  // namespace telegrad
