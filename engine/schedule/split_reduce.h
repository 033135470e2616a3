// Large reductions into few results become two: parts that threads share, and what is left.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// From and to a legalized tensor graph (legalize.h). Floats are reduced in another order.
absl::StatusOr<FrozenGraph> SplitReductions(FrozenGraph graph, Budget* budget);

}  // namespace telegrad
