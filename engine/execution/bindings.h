// What may be bound to the slots of an executable: buffers that are long enough and aligned, of
// which a written one may be written and overlaps no other.
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
// What the code of a target asks for: threads of a GPU read vectors, and none that is not aligned.
int64_t BindingAlignment(const Target& target);

// Of bindings that passed: one for every slot, as a queue expects them; those without bytes get an
// empty one.
std::vector<BufferView> BindAll(std::span<const SlotUse> slots,
                                std::span<const BufferView> bindings);

}  // namespace telegrad
