// What a graph requires of the buffers that are bound to its slots, derived from the graph alone.
#pragma once

#include <vector>

#include "engine/execution/executable.h"
#include "engine/ir/graph.h"

namespace telegrad {

// By slot: type, shape and bytes.
std::vector<SlotUse> CollectSlots(UOp sink);

// The same, and which are read and written.
std::vector<SlotUse> CollectSlotUses(UOp sink);

}  // namespace telegrad
