// Reducing in blocks: a reduction that is split over a loop around kept loops, with its
// accumulators in private memory.
#pragma once

#include <span>

#include "engine/lowering/substitute.h"

namespace telegrad {

// Each REDUCE of `sink` that reduces over one of `blocks` does so in loops outside of those kept
// loops that it depends on and that are not in `outside`: with u the inner ones of these,
//
//   REDUCE(body, block, rest)  ->  acc[u] after, for every block: acc[u] += REDUCE(body, rest)
//
// `outside` are loops around all roots. The bodies hold no REDUCE.
UOp FoldInBlocks(Rewriter& b, UOp sink, std::span<const UOp> blocks, std::span<const UOp> outside);

}  // namespace telegrad
