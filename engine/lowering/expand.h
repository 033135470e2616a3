// Expansion: ranges that are not loops disappear. UPCAST and UNROLL iterations are replicated, the
// VECTOR range becomes lanes, and every REDUCE becomes an accumulator in registers.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// The result is SINK(END(STORE, ranges...)...) over loops only; see program.h for the forms it
// uses. Threads exchange values in warps of so many, or, where that is 1, in local memory only.
absl::StatusOr<UOp> ExpandRanges(Rewriter& b, UOp sink, int64_t warp);

}  // namespace telegrad
