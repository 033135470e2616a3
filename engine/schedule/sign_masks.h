// Masks of what is positive: 0 < x is 0 < relu(x).
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// From and to a legalized tensor graph (legalize.h). Where a graph has both max(x, 0), or WHERE(0 <
// x, x, 0), and 0 < x for others, as the gradient of a ReLU does, the others compare the result, so
// that x need not be kept until they run. The same values, NaN included.
absl::StatusOr<FrozenGraph> MasksOfResults(FrozenGraph graph, Budget* budget);

}  // namespace telegrad
