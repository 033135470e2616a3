// The processor as a device: one queue, served by a thread of its own, whose launches are split
// over a pool of workers.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/device.h"
#include "engine/types/target.h"

namespace telegrad {

struct CpuOptions {
  int index = 0;    // the device is called CPU:<index>
  int threads = 0;  // that run one launch, the queue's included; below 1: what the hardware has
  int64_t memory_limit = 0;     // bytes; below 1: half of the machine's memory
  Target target;                // what programs are compiled for; passed through
  int queue_capacity = 16'384;  // submissions
  // A submission whose foreign wait is not reached by then fails with DEADLINE_EXCEEDED, so that a
  // lost point does not stop the queue for good.
  absl::Duration wait_limit = absl::Minutes(5);
};

// Destroying the device ends what was submitted: what can run runs, what still waits for a point of
// another timeline fails with CANCELLED. Memory, programs and timelines may outlive it.
absl::StatusOr<std::unique_ptr<Device>> OpenCpu(const CpuOptions& options);

}  // namespace telegrad
