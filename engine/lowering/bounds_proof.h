// The bounds proof: an independent look at the final linear program. It trusts nothing that was
// simplified before; it only reads INDEX nodes, their gates, and the sizes of buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

// Whether every element that the INDEX `address` names while its gate holds lies inside its buffer.
bool ProveInside(UOp address);

// The INDEX nodes of a linear program for which that could not be shown.
std::vector<UOp> FindUnproved(const Graph& graph, const std::vector<uint32_t>& order);

}  // namespace telegrad
