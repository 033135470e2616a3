// A general form together with the values of its variables: an executable like that of a graph
// without variables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/execution/planned_executable.h"
#include "engine/types/var_value.h"

namespace telegrad {

class BoundValues final : public Executable {
 public:
  // `general` reads the values from its last slot.
  static absl::StatusOr<std::shared_ptr<const Executable>> Create(
      std::shared_ptr<const PlannedExecutable> general, std::span<const VarValue> values);

  std::span<const SlotUse> slots() const override {
    return general_->slots().first(general_->slots().size() - 1);
  }
  std::span<const KernelInfo> kernels() const override { return general_->kernels(); }
  RunCost cost() const override { return general_->cost(); }

 private:
  BoundValues(std::shared_ptr<const PlannedExecutable> general, BufferView values)
      : general_(std::move(general)), values_(std::move(values)) {}

  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override;

  const std::shared_ptr<const PlannedExecutable> general_;
  const BufferView values_;
};

}  // namespace telegrad
