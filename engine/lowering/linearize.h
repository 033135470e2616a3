// Puts the nodes of an expanded kernel into execution order.
#pragma once

#include <vector>

#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Node ids as Program::order has them; END(effect, ranges...) becomes one closing END for each
// range, made in `graph`. Each node is placed in the outermost loop in which it can be computed.
absl::StatusOr<std::vector<uint32_t>> Linearize(Graph* graph, UOp sink);

}  // namespace telegrad
