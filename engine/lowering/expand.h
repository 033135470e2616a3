// Expansion: ranges that are not loops disappear. UPCAST and UNROLL iterations are replicated, the
// VECTOR range becomes lanes, and every REDUCE becomes an accumulator in registers.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// The result is SINK(END(STORE, ranges...)...) over loops only; see program.h for the forms it
// uses. Threads exchange values in the target's warps, or, where these are of one thread, in local
// memory only.
absl::StatusOr<UOp> ExpandRanges(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
