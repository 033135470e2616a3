// Large reductions into few results become two: parts that threads share, and what is left.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/types/machine_costs.h"

namespace telegrad {

// From and to a legalized tensor graph (legalize.h). Floats are reduced in another order. Where it
// is `fixed`, the parts of a float sum follow from its own length alone: a sum of products is cut
// only where one takes long, because a product of large matrices would have too many parts to keep.
absl::StatusOr<FrozenGraph> SplitReductions(FrozenGraph graph, const ReductionSplit& split,
                                            bool fixed, Budget* budget);

}  // namespace telegrad
