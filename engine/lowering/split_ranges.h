// Ranges that indices take apart become two.
#pragma once

#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// Where an index divides a range of n iterations by a divisor c of n, or takes its remainder, the
// range becomes one of n / c and one of c: what was irregular in one range is linear in each of the
// two. Only where vectors of 4-byte elements fill c; for workgroups only where a sum of products
// then is one of matrices.
UOp SplitRanges(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
