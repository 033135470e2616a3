// Devices of OpenCL drivers, through the loader, which is opened at run time: a compute queue and a
// copy queue, each a command queue of the driver with a thread that serves it, and memory of their
// own that the host does not address.
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

struct OpenClOptions {
  std::string library = "libOpenCL.so.1";  // the loader
  int64_t devices = -1;      // the first so many that its platforms show; below 0: all of them
  OneDevice only = {};       // of these
  int64_t memory_limit = 0;  // bytes of each; below 1: a share of what the device has
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  // Also devices that round otherwise, for tests that look for something else.
  bool inexact = false;
  // A device that is at the same commands for so long is taken for stuck.
  absl::Duration hang_limit = absl::Minutes(5);
};

// A device for each that the loader's platforms show, OPENCL:0, ... in its order. What cannot be
// used is left out, and `notes`, which may be null, say why, one for each device or one for all.
//
// A device that fails at work or gets stuck is lost: its health says so, everything that it has not
// ended fails with UNAVAILABLE, and it takes no more work until Device::Recover opens it again,
// which a device that is stuck refuses until it has ended what it is at. The others go on.
std::vector<std::unique_ptr<Device>> OpenOpenCls(const OpenClOptions& options,
                                                 std::vector<std::string>* notes);

}  // namespace telegrad
