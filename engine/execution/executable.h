// An executable is the compiled form of a tensor graph for one device: its programs loaded, its
// temporaries planned, its launches encoded. It is immutable and shared by all who send the same
// graph; a run binds buffers to slots and submits. The resources that a run needs are known before
// it starts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/execution/run_queues.h"
#include "engine/ir/graph.h"

namespace telegrad {

// What a run binds to a PARAM slot.
struct SlotUse {
  bool used = false;
  bool read = false;
  bool written = false;
  DType dtype = DType::kVoid;
  Shape shape;
  int64_t bytes = 0;
};

// Memory that a kernel works on: a slot's, or a part of the temporaries'.
struct KernelArgument {
  bool temporary = false;
  int32_t slot = 0;     // unless it is temporary
  int32_t packed = -1;  // unless negative: the copy of the slot that LaunchPlan::packed names
  int64_t offset = 0;   // bytes into the temporaries
  int64_t bytes = 0;
  bool read = false;
  bool written = false;
};

// Description of a kernel of an executable, for reports.
struct KernelInfo {
  std::string name;
  std::vector<std::string> reasons;  // why it is a kernel of its own, and computes what it does
  double flops = 0;                  // of the whole kernel, with bytes
  double bytes = 0;
  double seconds = 0;     // predicted, see PredictedSeconds
  std::string moves;      // that lowering carried out, see engine/lowering/moves/move.h
  bool searched = false;  // a search found them
  uint64_t heat = 0;      // its number in KernelHeat; 0: not counted
  int64_t iterations = 1;
  int segments = 1;  // launches that it is cut into
  std::vector<KernelArgument> arguments;
};

// The resources that one run needs. A buffer that is read and written counts as an output.
struct RunCost {
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  int64_t temporary_bytes = 0;
  double flops = 0;
  double bytes = 0;           // moved
  double seconds = 0;         // predicted
  double launch_seconds = 0;  // predicted, of the longest launch

  // The largest memory in use at a time: all buffers are bound for as long as the run lasts.
  int64_t peak_bytes() const { return input_bytes + output_bytes + temporary_bytes; }
};

class Executable {
 public:
  virtual ~Executable() = default;

  virtual std::span<const SlotUse> slots() const = 0;
  virtual std::span<const KernelInfo> kernels() const = 0;  // in the order of their launches
  int num_launches() const { return static_cast<int>(kernels().size()); }
  virtual RunCost cost() const = 0;
  // The devices on which a run may have values of its own, beside its slots and temporaries of
  // kernels; empty for a run on one device.
  virtual std::vector<const Device*> value_devices() const { return {}; }
  // A lower bound of the host memory that it occupies: the code of its kernels, including shared
  // ones, its launches and their descriptions.
  virtual int64_t kept_bytes() const;

  // Enqueues a run with bindings[i] as slot i and returns the point at which it has ended.
  // INVALID_ARGUMENT names the slot that is missing, too short or misaligned, or the two that
  // overlap where one is written. RESOURCE_EXHAUSTED: no memory for the temporaries now, or the
  // queue is full; nothing was enqueued. `trace` and `cancellation` may be null, see Queue::Submit.
  // The work is submitted through `queues`, which is not used after the call. Thread-safe.
  absl::StatusOr<TimelinePoint> Submit(std::span<const BufferView> bindings,
                                       std::span<const TimelinePoint> waits,
                                       std::shared_ptr<RunTrace> trace = nullptr,
                                       std::shared_ptr<const Cancellation> cancellation = nullptr,
                                       RunQueues& queues = DirectQueues()) const {
    return Run(bindings, waits, std::move(trace), std::move(cancellation), queues);
  }

 private:
  virtual absl::StatusOr<TimelinePoint> Run(std::span<const BufferView> bindings,
                                            std::span<const TimelinePoint> waits,
                                            std::shared_ptr<RunTrace> trace,
                                            std::shared_ptr<const Cancellation> cancellation,
                                            RunQueues& queues) const = 0;
};

}  // namespace telegrad
