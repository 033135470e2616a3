// Two ranges as one: what a matrix product calls its rows, columns or reduced index may be several
// ranges of a kernel, as the rows and columns of an image are, or the channels and taps of a
// window.
#pragma once

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// `sink` with `outer` and `inner` as one range, with the number of `inner` and as many iterations
// as both have together. What is closed is closed with both, or with neither. An index that steps
// over `outer` as if it continued `inner` steps over the joined range like that; others, and gates,
// get both ranges from its quotient and remainder.
UOp JoinRanges(Rewriter& b, UOp sink, UOp outer, UOp inner);

// Whether each END and REDUCE closes both ranges or neither.
bool AreClosedTogether(UOp sink, UOp outer, UOp inner);

}  // namespace telegrad
