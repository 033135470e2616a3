// A kernel and the moves that it has had. Each move checks itself: Apply says why a kernel cannot
// have it, and no list that Apply accepts changes what the kernel computes, up to the order of
// float reductions.
//
// PEEL, SEPARATE and JOIN are carried out at once, the others together by Finish: carry_out.h.
#pragma once

#include <memory>

#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/moves/move.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

struct MovedKernel {
  UOp root;               // after the moves that are carried out at once
  MoveList done = {};     // these
  MoveList pending = {};  // the others, in their order
  std::shared_ptr<const KernelShape> shape = nullptr;  // of `root`; null: not read yet
  bool peeled = false;                                 // and not separated yet
};

// kNo: a list that lowering has just chosen for the kernel. That such lists pass the checks is
// tested (golden_test, move_test); no kernel's lowering is to take longer for it, or to fail where
// a check is too strict.
enum class Checked { kYes, kNo };

// Whether a move is carried out at once: such moves stand before all others.
bool IsAtOnce(const Move& move);

// FAILED_PRECONDITION: the kernel cannot have the move, and why.
absl::StatusOr<MovedKernel> Apply(Rewriter& b, const Target& target, MovedKernel kernel,
                                  const Move& move, Checked checked = Checked::kYes);

// The root of the kernel with all of its moves. Bounds are proved at the end of lowering.
absl::StatusOr<UOp> Finish(Rewriter& b, const Target& target, MovedKernel kernel,
                           Checked checked = Checked::kYes);

}  // namespace telegrad
