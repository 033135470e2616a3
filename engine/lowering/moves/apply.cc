#include "engine/lowering/moves/apply.h"

#include <utility>

#include "engine/base/status.h"
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
      if (range.arg(0) != move.range) continue;
      out.push_back({move.kind, range, move.amount, move.axis});
    }
  }
  return out;
}

}  // namespace

absl::StatusOr<MovedKernel> Apply(Rewriter& b, const Target& target, MovedKernel kernel,
                                  const Move& move, Checked checked) {
  Graph& g = *b.graph();
  const bool peel = move.kind == Move::Kind::kPeel, separate = move.kind == Move::Kind::kSeparate;
  if ((peel || separate) && !kernel.pending.empty()) {
    return FailedPrecondition("move ", Print(move),
                              ": PEEL and SEPARATE stand before all other moves");
  }
  if (separate) {
    if (!kernel.peeled) return FailedPrecondition("move SEPARATE: nothing was peeled");
    kernel.root = SeparateRanges(&g, kernel.root);
    kernel.peeled = false;
  } else {
    if (kernel.peeled && !peel) {
      return FailedPrecondition("move ", Print(move), ": SEPARATE stands after the last PEEL");
    }
    if (checked == Checked::kYes || peel) TG_RETURN_IF_ERROR(Read(&kernel, target));
    if (!peel) {
      if (checked == Checked::kYes) {
        TG_RETURN_IF_ERROR(CheckMove(*kernel.shape, kernel.pending, move, target));
      }
      kernel.pending.push_back(move);
      return kernel;
    }
    if (checked == Checked::kYes) TG_RETURN_IF_ERROR(CheckPeel(*kernel.shape, move, target));
    for (const RangeMove& m : Resolve(*kernel.shape, MoveList{move})) {
      kernel.root = Peel(b, kernel.root, m.range, m.amount);
    }
    kernel.peeled = true;
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
