// Checks the buffers that are bound to the slots of an executable: each is long enough and aligned;
// one that is written permits writing and overlaps no other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "devices/api/device.h"
#include "engine/execution/executable.h"

namespace telegrad {

// INVALID_ARGUMENT names the slots and what is wrong with their buffers. Buffers are aligned to
// their elements, and to `alignment` bytes.
absl::Status CheckBindings(std::span<const SlotUse> slots, std::span<const BufferView> bindings,
                           int64_t alignment = 1);
// The alignment that code for a target requires: threads of a GPU read only aligned vectors.
int64_t BindingAlignment(const Target& target);

// The buffers of checked bindings as a queue expects them: one for every slot, an empty one for
// slots without bytes.
std::vector<BufferView> BindAll(std::span<const SlotUse> slots,
                                std::span<const BufferView> bindings);

}  // namespace telegrad
