// Indices that are read from memory and gated: what their gates say about them.
#pragma once

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// Where the gate of an access says that a loaded x is from 0 to n - 1, in its index x mod m is x
// and x div m is 0 for m from n on: where the gate does not hold, nothing is accessed. So a gather
// from rows that are kept apart divides nothing, which no processor does in vectors.
UOp SimplifyGatedIndices(Rewriter& b, UOp sink);

}  // namespace telegrad
