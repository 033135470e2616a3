// Which moves a kernel can have. The conditions are those under which the program computes what the
// kernel says; whether a move is worth while is not asked here.
#pragma once

#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/moves/move.h"
#include "engine/types/target.h"

namespace telegrad {

// FAILED_PRECONDITION says why `move`, a PEEL, cannot be the next one.
absl::Status CheckPeel(const KernelShape& shape, const Move& move, const Target& target);

// The same of a JOIN in the kernel `sink`.
absl::Status CheckJoin(const KernelShape& shape, UOp sink, const Move& move, const Target& target);

// The same of any other move but SEPARATE, where `before` are the ones since the last SEPARATE.
absl::Status CheckMove(const KernelShape& shape, const MoveList& before, const Move& move,
                       const Target& target);

// That nothing is missing at the end of the list.
absl::Status CheckComplete(const KernelShape& shape, const MoveList& moves, const Target& target);

}  // namespace telegrad
