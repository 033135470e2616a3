// Memory of the process that a device's driver locks where it is.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/memory.h"

namespace telegrad {

// What a Device may be, too.
class LocksHostMemory {
 public:
  virtual ~LocksHostMemory() = default;
  // The `size` bytes at `pages`, which are whole pages, as memory of kPinnedHost: the driver locks
  // them, once, until the last reference to it goes, and it keeps `pages`. An error where the
  // driver locks no more, where it locks none, and where the device is lost.
  virtual absl::StatusOr<std::shared_ptr<Memory>> LockHost(std::shared_ptr<void> pages,
                                                           int64_t size) = 0;
};

}  // namespace telegrad
