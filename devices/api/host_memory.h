// Memory of the host that belongs to no device: where copies between two devices go through of
// which neither reaches the other.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad {

// `size` bytes, not zeroed, aligned to 64. RESOURCE_EXHAUSTED where the system has none.
absl::StatusOr<std::shared_ptr<Memory>> AllocHostMemory(int64_t size);

}  // namespace telegrad
