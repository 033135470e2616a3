// Idle memory that a device can do without at any time.
#pragma once

#include "devices/api/memory.h"

namespace telegrad {

class IdleMemoryAtOnce : public IdleMemory {
 public:
  // Gives all of it back that holds no allocation, also while the device is at work, which may wait
  // for that; how many bytes it was.
  virtual absl::StatusOr<int64_t> GiveBackAll() = 0;
};

}  // namespace telegrad
