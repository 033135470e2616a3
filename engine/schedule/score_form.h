// One form of what clients spell in several ways around the scores of an attention.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// `graph` is legalized. Where it has scores, which are sums of products with more elements than
// each of their operands and of which a maximum is taken or exponentials, the same values by fewer
// kinds of nodes: constants have no views; a REDUCE of a permuted value is a permuted REDUCE; what
// is added is not negated beneath a view; and whether some element of a row is more than -inf is
// whether its maximum is. Elementwise nodes are simplified as in kernels, but for the order of
// two values, which stays the client's. All results have the same bits.
absl::StatusOr<FrozenGraph> SimplifyScores(FrozenGraph graph, Budget* budget);

}  // namespace telegrad
