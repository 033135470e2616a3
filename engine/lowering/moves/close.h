// Closing the loops that moves leave.
#pragma once

#include <span>

#include "engine/lowering/moves/split.h"

namespace telegrad {

// The ranges of `sink` are replaced by their parts. Every root closes the parallel ranges, around
// its loops; THREAD's loop is outside of OUTER's, in the order of the moves, and these of others.
// Reductions over blocks get accumulators in memory (block.h). Invalid where the graph has an
// error.
UOp CloseLoops(Rewriter& b, UOp sink, std::span<const SplitRange> splits,
               std::span<const RangeMove> moves, const Parallel& parallel);

}  // namespace telegrad
