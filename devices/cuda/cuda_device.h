// NVIDIA GPUs through the CUDA driver API, opened at run time: a compute queue and copy queues,
// each a stream, with memory of their own that the host cannot address.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/api/generations_device.h"
#include "devices/api/host_queue.h"

namespace telegrad {

struct CudaOptions {
  std::string library = "libcuda.so.1";          // the driver's
  std::string management = "libnvidia-ml.so.1";  // for Device::sensors
  const Clock* clock = Clock::Steady();          // of the sensors
  int64_t devices = -1;  // the first so many GPUs that the driver shows; below 0: all of them
  // Of these. Where a GPU is in MIG mode, opening one names it to the driver by setting
  // CUDA_VISIBLE_DEVICES of this process, which then cannot open another.
  OneDevice only = {};
  int64_t memory_limit = 0;  // bytes of each; below 1: what is free but for a reserve
  // Bytes of the host that the driver of each keeps locked for LendPinned, at most.
  int64_t pinned_memory = int64_t{256} << 20;
  // Target::features for GPUs whose code is of `arch`, so that who compiles for them makes cubins
  // (engine/compile/ptxas.h); an error, or no function: PTX, which the driver translates.
  std::function<absl::StatusOr<std::string>(const std::string& arch)> assembler = {};
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  // A GPU that is at the same submission for so long is taken for stuck.
  absl::Duration hang_limit = absl::Minutes(5);
};

// A device for each GPU, CUDA:0, ... as the driver counts them; where one is in MIG mode, for each
// other GPU and each instance in the order of nvidia-smi -L, as far as the driver shows them to one
// process, or for the one of `only`. What cannot be used is left out,
// and `notes`, which may be null, say why, one for each GPU or one for all.
//
// A GPU that faults or gets stuck fails: its health says so, everything that it has not ended fails
// with UNAVAILABLE, and it takes no more work until Device::Recover. The others go on.
std::vector<std::unique_ptr<Device>> OpenCudas(const CudaOptions& options,
                                               std::vector<std::string>* notes);

}  // namespace telegrad
