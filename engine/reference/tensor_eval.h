// The reference evaluator of tensor graphs, with which compiled results are compared: evaluates the
// graph node by node on host bytes, without fusion, views or scheduling.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"

namespace telegrad::reference {

// The value of each VAR without a source, by id.
using Variables = std::map<int64_t, int64_t>;

// Runs the tensor-level graph `sink` on slots[i] as the elements of PARAM slot i, row-major,
// little-endian, packed types without gaps, as many as the PARAM's dims say. A PARAM reads its slot
// as it was before the run; AFTER(PARAM, stores) reads it after the last of them; when the run has
// succeeded, the slots hold what all stores left. On an error they are unchanged.
//
// A value of symbolic dims has the elements of its actual dims, which the variables give. REDUCE
// reduces in row-major order from the identity, ALLREDUCE in the order of the devices.
//
// INVALID_ARGUMENT: the graph is not well formed, a slot is missing or shorter than its PARAM, or a
// variable has no value or one that its VAR does not allow. RESOURCE_EXHAUSTED: the budget. The
// evaluation spends a node for each node evaluated, again for each execution of a body, and the
// bytes of the values that are alive at a time.
absl::Status Evaluate(UOp sink, std::span<std::vector<uint8_t>> slots, Budget* budget,
                      const Variables& variables = {});

}  // namespace telegrad::reference
