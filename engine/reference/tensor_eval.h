// The judge of everything between a tensor graph and its results: evaluates the graph node by node
// on host bytes, without fusion, views or scheduling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad::reference {

// Runs the tensor-level graph `sink` on slots[i] as the elements of PARAM slot i, row-major,
// little-endian. A PARAM reads its slot as it was before the run; AFTER(PARAM, stores) reads it
// after the last of them; when the run has succeeded, the slots hold what all stores left. On an
// error they are unchanged.
//
// REDUCE folds in row-major order from the identity, in the element type's own precision.
//
// INVALID_ARGUMENT: the graph is not well formed, or a slot is missing or shorter than its PARAM.
// RESOURCE_EXHAUSTED: a value of more than 2^28 elements, or the budget.
absl::Status Evaluate(UOp sink, std::span<std::vector<uint8_t>> slots, Budget* budget);

}  // namespace telegrad::reference
