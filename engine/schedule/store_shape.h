// A sum of products is stored in its own shape.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// STORE(target, RESHAPE(sum)) -> STORE(RESHAPE(target), sum) where the RESHAPE joins axes of a sum
// of products, as the heads of a group are: then the loops of the kernel are the sum's, and nests
// that compute its operands share them. Also where it leaves out axes of size 1 of a sum that
// others read, too: then these read what is stored. From and to a legalized tensor graph
// (legalize.h).
// `only_weighted`: only sums that the weights of a softmax are factors of, and no others.
absl::StatusOr<FrozenGraph> StoreInOwnShape(FrozenGraph graph, bool only_weighted, Budget* budget);

}  // namespace telegrad
