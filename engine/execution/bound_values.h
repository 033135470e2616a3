// A general form together with the values of its variables: an executable like that of a graph
// without variables.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/execution/planned_executable.h"
#include "engine/execution/run_queues.h"
#include "engine/rewrite/generalize.h"
#include "engine/types/form_cost.h"
#include "engine/types/var_value.h"

namespace telegrad {

class BoundValues final : public Executable {
 public:
  // `general` reads the values from its last slot. Where the host cannot write the device's memory,
  // each run begins with a copy of them. The form is for `ranges`, with `least_share` of its work
  // done for the least values.
  static absl::StatusOr<std::shared_ptr<const Executable>> Create(
      std::shared_ptr<const PlannedExecutable> general, std::vector<VarRange> ranges,
      std::span<const VarValue> values, double least_share);

  std::span<const SlotUse> slots() const override {
    return general_->slots().first(general_->slots().size() - 1);
  }
  std::span<const KernelInfo> kernels() const override { return general_->kernels(); }
  RunCost cost() const override;
  FormCost<RunCost> form_cost() const;

 private:
  using Slices = std::shared_ptr<const std::vector<RunSlice>>;

  BoundValues(std::shared_ptr<const PlannedExecutable> general, std::vector<VarRange> ranges,
              BufferView values, double least_share, double share, std::vector<uint64_t> scalars,
              BufferView staged, Slices copy)
      : general_(std::move(general)),
        ranges_(std::move(ranges)),
        values_(std::move(values)),
        least_share_(least_share),
        share_(share),
        scalars_(std::move(scalars)),
        staged_(std::move(staged)),
        copy_(std::move(copy)) {}

  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override;

  const std::shared_ptr<const PlannedExecutable> general_;
  const std::vector<VarRange> ranges_;
  const BufferView values_;
  const double least_share_;
  const double share_;                   // of the work of the form, that is done with the values
  const std::vector<uint64_t> scalars_;  // of each run
  const BufferView staged_;              // memory of the host, where the device's is not
  const Slices copy_;                    // from there; else null
};

// What runs take with the values that the executable's form is for: more than these, if it is a
// general one.
FormCost<RunCost> FormCostOf(const Executable& executable, std::span<const VarValue> values);

}  // namespace telegrad
