// AMD GPUs through the HIP runtime API, opened at run time: a compute queue and copy queues, each
// a stream, with memory of their own that the host cannot address.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/api/generations_device.h"
#include "devices/api/host_queue.h"

namespace telegrad {

struct HipOptions {
  // HIP's, separated by colons: the first that can be opened.
  std::string library = "libamdhip64.so.7:libamdhip64.so.6";
  int64_t devices = -1;      // the first so many GPUs that HIP shows; below 0: all of them
  OneDevice only = {};       // of these
  int64_t memory_limit = 0;  // bytes of each; below 1: what is free but for a reserve
  // Bytes of the host that the driver of each keeps locked for LendPinned, at most.
  int64_t pinned_memory = int64_t{256} << 20;
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  // A GPU that is at the same submission for so long is taken for stuck.
  absl::Duration hang_limit = absl::Minutes(5);
};

// A device for each GPU, HIP:0, ... as HIP counts them. What cannot be used is left out, and
// `notes`, which may be null, say why, one for each GPU or one for all.
//
// A GPU that faults or gets stuck fails, as those of OpenCudas do.
std::vector<std::unique_ptr<Device>> OpenHips(const HipOptions& options,
                                              std::vector<std::string>* notes);

}  // namespace telegrad
