// Loops that end where a mask hides all that is left.
#pragma once

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// The kernel keeps a row of values for each of several rows in private memory, as attention keeps
// its scores (schedule/nests.h). Where a comparison of positions makes values of a row -inf, and
// all that is computed of these is what an exponential of -inf contributes, the loops over the row
// leave out the blocks that hold such values alone: they end, or begin, at a bound that is computed
// from the loops around them. What is left out is 0 times a value that is not kept. Where one of
// these is no finite number, so that 0 times it is no number, they are multiplied by 0 and added
// all the same, once for all rows. So the results are those of the loops as they were. Where the
// order of sums is fixed, a block has whole groups of partial sums. Loops that threads of a
// workgroup may share stay as they are.
UOp LimitLoops(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
