// Carrying out a list of moves.
#pragma once

#include <vector>

#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/moves/split.h"

namespace telegrad {

// The kernel `sink`, whose shape is `shape`, with all of the moves, none of which is carried
// out at once (apply.h).
absl::StatusOr<UOp> CarryOut(Rewriter& b, const Target& target, UOp sink, const KernelShape& shape,
                             const std::vector<RangeMove>& moves);

}  // namespace telegrad
