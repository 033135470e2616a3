// An executable on one queue of one device: a plan that is encoded once. A run only checks and
// passes its buffers, so its cost on the host does not depend on the number of kernels.
//
// A run binds those copies of packed slots that are kept (packed_copies.h) and packs the others
// into its temporaries, each right before its kernel. The commands of the latest such choices are
// kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/mutex.h"
#include "engine/execution/executable.h"
#include "engine/execution/found_moves.h"
#include "engine/execution/run_parts.h"
#include "engine/execution/temporaries.h"

namespace telegrad {

// Totals of runs.
struct RunCounters {
  std::atomic<uint64_t> submissions{0};
  std::atomic<uint64_t> launches{0};   // of kernels, submitted
  std::atomic<uint64_t> segments{0};   // that they were cut into
  std::atomic<int64_t> bytes_sent{0};  // from one device to another
  // Of graphs for several devices: how often one was partitioned, and how many of these partitions
  // are for one set of values of its variables.
  std::atomic<uint64_t> partitions{0}, partitions_for_values{0};
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
  RunParts parts;  // of a general form
  int64_t temporary_bytes = 0;
  bool zeroed_temporaries = false;  // a kernel may read one that none has written
  int64_t code_bytes = 0;           // of the programs
  // The keys of kernels in FoundMoves, and the lists that they were made with.
  std::vector<std::pair<std::string, std::optional<std::string>>> found;
};

class PlannedExecutable final : public Executable {
 public:
  // Marks which of the plan's slots its kernels read and write, and cuts the kernels into segments.
  static absl::StatusOr<std::shared_ptr<const PlannedExecutable>> Create(
      LaunchPlan plan, std::shared_ptr<DeviceRuns> runs);

  const LaunchPlan& plan() const { return plan_; }
  // Whether a better list has been found for one of its kernels since it was made.
  bool IsOutdated(FoundMoves& found) const;
  const std::shared_ptr<DeviceRuns>& runs() const { return runs_; }

  // Of a run with these values of the variables of `plan().parts`; see RunParts::Scalars.
  std::vector<uint64_t> ScalarsFor(std::span<const VarValue> values) const;
  // As Submit, of what these scalars say.
  absl::StatusOr<TimelinePoint> SubmitPart(std::vector<uint64_t> scalars,
                                           std::span<const BufferView> bindings,
                                           std::span<const TimelinePoint> waits,
                                           std::shared_ptr<RunTrace> trace,
                                           std::shared_ptr<const Cancellation> cancellation,
                                           RunQueues& queues) const;

  std::span<const SlotUse> slots() const override { return plan_.slots; }
  std::span<const KernelInfo> kernels() const override { return plan_.kernels; }
  RunCost cost() const override { return cost_; }
  int64_t kept_bytes() const override;

 private:
  PlannedExecutable(LaunchPlan plan, std::shared_ptr<DeviceRuns> runs)
      : plan_(std::move(plan)), runs_(std::move(runs)) {}

  // The commands of runs for which these of keeps_ are kept.
  using Kept = std::vector<bool>;
  struct Form {
    std::shared_ptr<const std::vector<RunSlice>> slices;
    int64_t temporary_bytes = 0;
    uint64_t segments = 0;
  };

  absl::Status Encode();
  absl::Status Predict(KernelInfo* kernel, int64_t* segments);
  absl::StatusOr<Form> EncodeForm(const Kept& kept) const;
  absl::StatusOr<Form> FormOf(const Kept& kept) const;
  // The copies that are kept, in the order of keeps_.
  std::vector<std::optional<PackedCopy>> Copies(std::span<const BufferView> bindings,
                                                std::span<const TimelinePoint> waits,
                                                RunQueues& queues) const;
  absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                    std::span<const TimelinePoint> waits,
                                    std::shared_ptr<RunTrace> trace,
                                    std::shared_ptr<const Cancellation> cancellation,
                                    RunQueues& queues) const override {
    return SubmitPart(ScalarsFor({}), bindings, waits, std::move(trace), std::move(cancellation),
                      queues);
  }

  LaunchPlan plan_;
  mutable std::atomic<uint64_t> seen_{0};  // version of the lists at which it was not outdated
  const std::shared_ptr<DeviceRuns> runs_;
  RunCost cost_;
  // The slots that are bindings 0, 1, ...; the temporaries follow, if there are any, then copies
  // that are kept.
  std::vector<size_t> bound_;
  std::vector<int32_t> binding_;  // of each slot; -1: none
  std::vector<size_t> keeps_;     // the packed slots that no kernel writes
  std::vector<std::shared_ptr<const std::vector<RunSlice>>> packs_;  // of keeps_
  Form plain_;                                                       // nothing is kept
  mutable Mutex mutex_;
  mutable std::vector<std::pair<Kept, Form>> forms_
      TG_GUARDED_BY(mutex_);  // others, the latest last
};

}  // namespace telegrad
