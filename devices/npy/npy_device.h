// Host arrays as a device: its buffers are memory that the caller owns (a NumPy array, a mapped
// tensor), wrapped and not copied. It copies to and from other devices and runs no programs; the
// CPU's programs may use its memory in place. It is for use within one process, so no daemon offers
// it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/memory_device.h"

namespace telegrad {

struct NpyOptions {
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
};

class NpyDevice : public MemoryDevice {
 public:
  // `size` bytes at `data`, which stay where they are. `owner` is held until the last reference to
  // the memory has gone, and with it every submission that uses it.
  virtual absl::StatusOr<std::shared_ptr<Memory>> Import(void* data, int64_t size,
                                                         std::shared_ptr<const void> owner) = 0;
  // The same for bytes that nobody may write.
  virtual absl::StatusOr<std::shared_ptr<Memory>> ImportReadOnly(
      const void* data, int64_t size, std::shared_ptr<const void> owner) = 0;

 protected:
  using MemoryDevice::MemoryDevice;
};

// Called NPY:0. Alloc and Load are UNIMPLEMENTED.
std::unique_ptr<NpyDevice> OpenNpy(const NpyOptions& options);

}  // namespace telegrad
