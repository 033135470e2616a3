// The processor as a device: a compute queue, served by a thread of its own, whose launches are
// split over a pool of workers, and a copy queue with another thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/host_queue.h"
#include "devices/cpu/cgroup_memory.h"
#include "engine/types/target.h"

namespace telegrad {

struct CpuOptions {
  int index = 0;    // the device is called CPU:<index>
  int threads = 0;  // that run one launch, the queue's included; below 1: what the hardware has
  int64_t memory_limit = 0;  // bytes; below 1: DefaultCpuMemory
  Target target = {};        // what programs are compiled for; passed through
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  // A launch that runs for longer fails with RESOURCE_EXHAUSTED.
  absl::Duration launch_limit = absl::InfiniteDuration();
};

// Half of the memory of the machine or, where that is less, of the control groups.
int64_t DefaultCpuMemory(const Cgroups& cgroups = {});

// Puts what was left to it in place of what is below 1.
void Complete(CpuOptions* options);

// Destroying the device ends what was submitted, first on the copy queue, see ~HostQueue. Memory,
// programs and timelines may outlive it.
absl::StatusOr<std::unique_ptr<Device>> OpenCpu(const CpuOptions& options);

}  // namespace telegrad
