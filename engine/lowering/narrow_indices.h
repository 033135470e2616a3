// Index arithmetic in 32 bits, for targets that compute it faster (Target::index_bits).
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// The expanded kernel `root` with i32 in place of i64 where every value fits: in ranges, in the
// places and gates of accesses, and in conditions and conversions. Each access was proved inside
// its buffer (bounds_proof.h) and is so afterwards: one that is not with an index of 32 bits keeps
// that of 64.
absl::StatusOr<UOp> NarrowIndices(Graph* graph, UOp root, Budget* budget);

}  // namespace telegrad
