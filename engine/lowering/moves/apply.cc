#include "engine/lowering/moves/apply.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/lowering/join.h"
#include "engine/lowering/moves/carry_out.h"
#include "engine/lowering/moves/check.h"
#include "engine/lowering/moves/peel.h"
#include "engine/lowering/separate.h"

namespace telegrad {
namespace {

absl::Status Read(MovedKernel* kernel, const Target& target) {
  if (kernel->shape != nullptr) return absl::OkStatus();
  std::optional<KernelShape> shape = ReadShape(kernel->root, target);
  if (!shape) return ResourceExhausted("lowering: more than ", kMaxRanges, " ranges");
  kernel->shape = std::make_shared<const KernelShape>(*std::move(shape));
  return absl::OkStatus();
}

// The moves with their RANGEs.
std::vector<RangeMove> Resolve(const KernelShape& shape, const MoveList& moves) {
  std::vector<RangeMove> out;
  for (const Move& move : moves) {
    for (UOp range : shape.d.ranges) {
      if (range.range_id() != move.range) continue;
      out.push_back({move.kind, range, move.amount, move.axis, move.ring});
    }
  }
  return out;
}

absl::StatusOr<UOp> ApplyAtOnce(Rewriter& b, const Target& target, const MovedKernel& kernel,
                                const Move& move, Checked checked) {
  const KernelShape& shape = *kernel.shape;
  if (move.kind == Move::Kind::kJoin) {
    if (checked == Checked::kYes) TG_RETURN_IF_ERROR(CheckJoin(shape, kernel.root, move, target));
    const RangeMove outer = Resolve(shape, {move}).at(0);
    const RangeMove inner = Resolve(shape, {Move{.kind = move.kind, .range = move.inner}}).at(0);
    return JoinRanges(b, kernel.root, outer.range, inner.range);
  }
  if (checked == Checked::kYes) TG_RETURN_IF_ERROR(CheckPeel(shape, move, target));
  UOp root = kernel.root;
  for (const RangeMove& m : Resolve(shape, {move})) root = Peel(b, root, m.range, m.amount);
  return root;
}

}  // namespace

bool IsAtOnce(const Move& move) {
  return move.kind == Move::Kind::kPeel || move.kind == Move::Kind::kSeparate ||
         move.kind == Move::Kind::kJoin;
}

absl::StatusOr<MovedKernel> Apply(Rewriter& b, const Target& target, MovedKernel kernel,
                                  const Move& move, Checked checked) {
  Graph& g = *b.graph();
  const bool peel = move.kind == Move::Kind::kPeel, separate = move.kind == Move::Kind::kSeparate;
  if (IsAtOnce(move) && !kernel.pending.empty()) {
    return FailedPrecondition("move ", Print(move),
                              ": PEEL, SEPARATE and JOIN stand before all other moves");
  }
  if (separate) {
    if (!kernel.peeled) return FailedPrecondition("move SEPARATE: nothing was peeled");
    kernel.root = SeparateRanges(&g, kernel.root);
    kernel.peeled = false;
  } else {
    if (kernel.peeled && !peel) {
      return FailedPrecondition("move ", Print(move), ": SEPARATE stands after the last PEEL");
    }
    if (checked == Checked::kYes || IsAtOnce(move)) TG_RETURN_IF_ERROR(Read(&kernel, target));
    if (!IsAtOnce(move)) {
      if (checked == Checked::kYes) {
        TG_RETURN_IF_ERROR(CheckMove(*kernel.shape, kernel.pending, move, target));
      }
      kernel.pending.push_back(move);
      return kernel;
    }
    TG_ASSIGN_OR_RETURN(kernel.root, ApplyAtOnce(b, target, kernel, move, checked));
    kernel.peeled = peel;
  }
  if (!kernel.root.valid()) return g.status();
  kernel.shape = nullptr;
  kernel.done.push_back(move);
  return kernel;
}

absl::StatusOr<UOp> Finish(Rewriter& b, const Target& target, MovedKernel kernel, Checked checked) {
  if (kernel.peeled) return FailedPrecondition("moves: SEPARATE stands after the last PEEL");
  TG_RETURN_IF_ERROR(Read(&kernel, target));
  if (checked == Checked::kYes) {
    TG_RETURN_IF_ERROR(CheckComplete(*kernel.shape, kernel.pending, target));
  }
  return CarryOut(b, target, kernel.root, *kernel.shape, Resolve(*kernel.shape, kernel.pending));
}

}  // namespace telegrad
