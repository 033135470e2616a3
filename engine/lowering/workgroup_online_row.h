// A softmax over one row, by the threads of a workgroup that have parts of it.
#pragma once

#include "engine/lowering/online_match.h"
#include "engine/types/target.h"

namespace telegrad {

// What SumOnline does (online.h) for a kernel with one row of scores, as of an attention of one
// query. Threads that are neighbours share a key and have parts of its channels; others have other
// keys, and maxima, sums and weighted sums of their own, which are put together after the last key.
// So nothing of a row is in memory, and nobody waits for others in the loop. The parallel loops are
// left for moves to make workgroups of. Invalid where the kernel is none for that.
UOp SumOneRowTogether(Rewriter& b, const Target& target, const CoupledSums& sums);

}  // namespace telegrad
