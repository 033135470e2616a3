// Loops over the few iterations, from a place that the run gives on, in which something happens.
#pragma once

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// A RANGE of a STORE's nest, of which gates leave those from a number that the run gives up to
// another one, a constant distance above it: as many iterations as that, from the number on. So
// what is written to a row of a cache costs a row, wherever it is. The gates then hold.
UOp MoveWindows(Rewriter& b, UOp sink);

}  // namespace telegrad
