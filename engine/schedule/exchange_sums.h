// Sums of products of sums in the order that needs what is computed anyway.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// sum over j of a(i, j) (sum over d of g(i, d) v(j, d)) becomes sum over d of g(i, d) y(i, d) where
// the graph has y(i, d) = sum over j of a(i, j) v(j, d), up to factors that are the same for all j
// (y may have others than the sum only where they are constants: what a run makes 0 has no
// inverse), and y has fewer elements than there are pairs of i and j. The first is what the
// gradient of a softmax subtracts from each row, the last the result of an attention: then one pass
// over all pairs is less. From and to a legalized graph; sums get another order.
absl::StatusOr<FrozenGraph> ExchangeSums(FrozenGraph graph, Budget* budget);

}  // namespace telegrad
