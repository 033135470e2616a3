// An executable on one queue of one device: a plan that is encoded once. A run only checks and
// passes its buffers, so its cost on the host does not depend on the number of kernels.
//
// A plan with packed slots is encoded twice: for runs whose copies are kept (packed_copies.h),
// which bind them, and for runs that pack into their temporaries, each copy right before its
// kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/execution/executable.h"
#include "engine/execution/temporaries.h"

namespace telegrad {

// Totals of runs.
struct RunCounters {
  std::atomic<uint64_t> submissions{0};
  std::atomic<uint64_t> launches{0};   // of kernels, submitted
  std::atomic<uint64_t> segments{0};   // that they were cut into
  std::atomic<int64_t> bytes_sent{0};  // from one device to another
};

// State that the executables of one tenant on a device share.
struct DeviceRuns {
  Device& device;
  const std::shared_ptr<Account> account;  // of device memory; may be null
  const std::shared_ptr<Temporaries> temporaries;
  const std::shared_ptr<RunCounters> counters;  // of all tenants
};

// A copy of a slot in the order in which kernels read it (Program::Packing).
struct PackedSlot {
  int32_t slot = 0;
  int64_t bytes = 0;  // of the copy
  KernelInfo kernel;  // that makes it: its arguments are the copy and the slot
  std::shared_ptr<LoadedProgram> program;
};

// What to launch, in order.
struct LaunchPlan {
  std::vector<SlotUse> slots;
  std::vector<KernelInfo> kernels;
  std::vector<std::shared_ptr<LoadedProgram>> programs;  // of the kernels
  std::vector<PackedSlot> packed;
  int64_t temporary_bytes = 0;
  bool zeroed_temporaries = false;  // a kernel may read one that none has written
  int64_t code_bytes = 0;           // of the programs
};

class PlannedExecutable final : public Executable {
 public:
  // Marks which of the plan's slots its kernels read and write, and cuts the kernels into segments.
  static absl::StatusOr<std::shared_ptr<const PlannedExecutable>> Create(
      LaunchPlan plan, std::shared_ptr<DeviceRuns> runs);

  const LaunchPlan& plan() const { return plan_; }
  const std::shared_ptr<DeviceRuns>& runs() const { return runs_; }

  std::span<const SlotUse> slots() const override { return plan_.slots; }
  std::span<const KernelInfo> kernels() const override { return plan_.kernels; }
  RunCost cost() const override { return cost_; }
  int64_t kept_bytes() const override;

 private:
  PlannedExecutable(LaunchPlan plan, std::shared_ptr<DeviceRuns> runs)
      : plan_(std::move(plan)), runs_(std::move(runs)) {}

  // The commands of a run. `slices` is null where this form is not needed.
  struct Form {
    std::shared_ptr<const std::vector<RunSlice>> slices;
    int64_t temporary_bytes = 0;
    uint64_t segments = 0;
  };

  absl::Status Encode();
  absl::StatusOr<Form> EncodeForm(bool kept);
  // Adds the segments of a launch and their predicted cost.
  absl::Status AddLaunch(KernelInfo& kernel, Launch launch, std::vector<PredictedCommand>* commands,
                         int64_t* segments);
  // Whether runs may keep the copy: none of its kernels writes the slot.
  bool MayKeep(const PackedSlot& packed) const {
    return !plan_.slots[static_cast<size_t>(packed.slot)].written;
  }
  std::optional<std::vector<PackedCopy>> Copies(std::span<const BufferView> bindings,
                                                std::span<const TimelinePoint> waits,
                                                RunQueues& queues) const;
  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override;

  LaunchPlan plan_;
  const std::shared_ptr<DeviceRuns> runs_;
  RunCost cost_;
  // The slots that are bindings 0, 1, ...; the temporaries follow, if there are any, then copies
  // that are kept.
  std::vector<size_t> bound_;
  std::vector<int32_t> binding_;  // of each slot; -1: none
  Form plain_, kept_;
  std::vector<size_t> keeps_;                                        // of the packed slots
  std::vector<std::shared_ptr<const std::vector<RunSlice>>> packs_;  // of `keeps_`
};

}  // namespace telegrad
