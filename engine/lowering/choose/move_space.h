// A kernel as it is right before lowering chooses its moves: which lists it can have is asked here,
// by the search and by tests, without lowering it to the end.
#pragma once

#include <memory>
#include <span>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/lowering/moves/apply.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

class MoveSpace {
 public:
  // `kernel` as the schedule makes it, with those of its arguments that are weights. `target` and
  // `budget` outlive the object.
  static absl::StatusOr<MoveSpace> Open(const FrozenGraph& kernel, const Target& target,
                                        std::span<const int32_t> weights, Budget* budget);

  // The kernel without any move.
  MovedKernel Begin() const { return {.root = piece_.root}; }
  // `kernel` with one more; FAILED_PRECONDITION says why it cannot have it.
  absl::StatusOr<MovedKernel> Add(MovedKernel kernel, const Move& move);
  // The kernel with all moves of the list.
  absl::StatusOr<MovedKernel> Add(const MoveList& moves);

  // The root with its moves carried out; FAILED_PRECONDITION says what the list lacks.
  absl::StatusOr<UOp> Finish(MovedKernel kernel);

  const Target& target() const { return target_; }
  std::span<const Program::Argument> arguments() const { return piece_.arguments; }

 private:
  MoveSpace(Piece piece, const Target& target, Budget* budget);

  Piece piece_;
  const Target& target_;
  std::unique_ptr<PassContext> context_;
};

}  // namespace telegrad
