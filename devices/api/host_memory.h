// Host memory that belongs to no device, through which bytes are copied between two devices that
// cannot reach each other's memory.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad {

// `size` bytes, not zeroed, aligned to 64. RESOURCE_EXHAUSTED where the system has none.
absl::StatusOr<std::shared_ptr<Memory>> AllocHostMemory(int64_t size);

}  // namespace telegrad
