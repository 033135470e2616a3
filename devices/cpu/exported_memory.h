// Memory of a CPU device that other processes open by a handle: a file of its own, beside the
// arena.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/cpu/arena.h"

namespace telegrad {

// `size` zeroed bytes that count as the arena's. RESOURCE_EXHAUSTED over its limit, or where the
// system has none.
absl::StatusOr<std::shared_ptr<Memory>> AllocExported(std::shared_ptr<Arena> arena, int64_t size);

// Empty of memory that AllocExported has not made.
std::string HandleOf(const Memory& memory);

// The first `size` bytes of what the handle names. They stay until the last reference goes,
// whatever the other process does. INVALID_ARGUMENT for a handle that names nothing, or less.
absl::StatusOr<std::shared_ptr<Memory>> OpenExported(std::string_view handle, int64_t size);

}  // namespace telegrad
