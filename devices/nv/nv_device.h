// NVIDIA GPUs (Hopper) through their hardware queues, without libcuda: the kernel driver of branch
// 580 gives memory and channels, everything else is written by this driver. A compute queue and a
// copy queue with memory of their own that the host cannot address.
//
// Not opened unless asked for: CUDA serves the same GPUs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/api/generations_device.h"
#include "devices/api/host_queue.h"
#include "devices/hcq/sys_ops.h"
#include "devices/nv/gpu.h"

namespace telegrad {

struct NvOptions {
  int64_t devices = 0;       // the first so many GPUs that the kernel driver shows
  OneDevice only = {};       // of these
  int64_t memory_limit = 0;  // bytes of each; below 1: what is free but for a reserve
  // Bytes of the host that the driver of each keeps locked for LendPinned, at most.
  int64_t pinned_memory = int64_t{256} << 20;
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  // A GPU that is at the same submission for so long is taken for stuck.
  absl::Duration hang_limit = absl::Minutes(5);
  // The assembler that makes its cubins, as Target::features names it; else why there is none, and
  // so no device.
  absl::StatusOr<std::string> assembler = absl::NotFoundError("none was looked for");
  hcq::SysOps* system = nullptr;  // null: the machine's own
  nv::GpuLimits limits = {};
};

// A device for each GPU, NV:0, ...
//
// When a channel faults or is stuck, the device is lost: its health says so, and what it has not
// ended fails with UNAVAILABLE. Device::Recover brings it back as a new generation, with new
// channels and a new client of the kernel driver.
//
// What cannot be used is left out, and `notes`, which may be null, say why.
std::vector<std::unique_ptr<Device>> OpenNvs(const NvOptions& options,
                                             std::vector<std::string>* notes);

}  // namespace telegrad
