// One step of a reduction: a value more, or the lanes of a vector.
#pragma once

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// `x` and `y` reduced to one. `fuses`: a product `y` is added without being rounded.
UOp Reduced(Rewriter& b, ReduceKind kind, UOp x, UOp y, bool fuses = true);
// The lanes of `vector`, as the REDUCE says, as a scalar.
UOp ReducedLanes(Graph& g, UOp reduce, UOp vector);

}  // namespace telegrad
