// Loops whose body differs from piece to piece, as of tensors that lie one behind another.
#pragma once

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// The value of a nest without reductions may select by comparisons of a range with constants: of a
// concatenation each part of the range loads another tensor, of a padding the edges load other
// elements than the middle. A loop that tests this in each iteration takes as long as all its
// tests.
//
// Before moves are chosen: the nest becomes one for each piece of the range, in which the
// comparisons are known, where enough iterations for all threads are around it. What was around the
// range is shared by the pieces, what was inside each has for itself.
UOp SplitPieces(Rewriter& b, UOp sink, const Target& target);

// After all loops have been chosen: a loop that the nest has alone becomes one for each piece. Of
// the range that threads share, or that other nests share, there is instead for each piece a loop
// inside of it that has iterations only in that piece.
UOp SplitInnerLoops(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
