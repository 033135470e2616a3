// Converts between graph.proto and Graph; no other code includes both.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "telegrad/v1/graph.pb.h"

namespace telegrad {

// The version of the form that Graph.form names.
inline constexpr uint32_t kGraphForm = 2;

// The nodes that the tensor-level graph `root` depends on, in post-order; the root is the last.
void ToProto(UOp root, v1::Graph* out);

// Admits a graph from outside: checks limits, every node against the op table, and the whole with
// Verify(tensor). Nodes that the root does not need are checked, then dropped. Spends a node of the
// budget for each node. INVALID_ARGUMENT "node 17 (add): ..." with the index in `in.nodes`;
// RESOURCE_EXHAUSTED where a limit of engine/types/limits.h or the budget is exceeded.
absl::StatusOr<FrozenGraph> FromProto(const v1::Graph& in, Budget* budget);

}  // namespace telegrad
