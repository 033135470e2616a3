#include "engine/lowering/choose/move_space.h"

#include <algorithm>
#include <utility>

#include "engine/lowering/passes.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"

namespace telegrad {
namespace {

constexpr const RuleTable* kRules[] = {&kAlgebra, &kDivMod};  // that moves build nodes with

}  // namespace

MoveSpace::MoveSpace(Piece piece, const Target& target, Budget* budget)
    : piece_(std::move(piece)),
      target_(target),
      context_(std::make_unique<PassContext>(piece_.graph.get(), target, budget)) {}

absl::StatusOr<MoveSpace> MoveSpace::Open(const FrozenGraph& kernel, const Target& target,
                                          std::span<const int32_t> weights, Budget* budget) {
  MoveSpace space(KernelPiece(kernel, "kernel", weights, {}, budget), target, budget);
  const std::span<const PassRow> rows = LoweringPasses();
  const auto peel = std::ranges::find(rows, "peel", &PassRow::name);
  TG_ASSIGN_OR_RETURN(
      space.piece_, RunPasses({rows.begin(), peel}, *space.context_, std::move(space.piece_), {}));
  return space;
}

absl::StatusOr<MovedKernel> MoveSpace::Add(MovedKernel kernel, const Move& move) {
  return Apply(context_->rewriter(kRules), target_, std::move(kernel), move);
}

absl::StatusOr<MovedKernel> MoveSpace::Add(const MoveList& moves) {
  MovedKernel kernel = Begin();
  for (const Move& move : moves) {
    TG_ASSIGN_OR_RETURN(kernel, Add(std::move(kernel), move));
  }
  return kernel;
}

absl::StatusOr<UOp> MoveSpace::Finish(MovedKernel kernel) {
  return telegrad::Finish(context_->rewriter(kRules), target_, std::move(kernel));
}

}  // namespace telegrad
