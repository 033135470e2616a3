#include "engine/lowering/lower.h"

#include <utility>

#include "engine/lowering/passes.h"

namespace telegrad {

absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, BoundsStats* stats, const PassOptions& options) {
  const Budget::Doing doing(budget, "lowering");
  Piece piece = KernelPiece(kernel, std::move(name), options.weights, options.results, budget);
  piece.given_moves = options.moves;
  PassContext context(piece.graph.get(), target, budget);
  TG_ASSIGN_OR_RETURN(Piece lowered,
                      RunPasses(LoweringPasses(), context, std::move(piece), options));
  if (stats != nullptr) {
    *stats += {.proved = context.counter(kAccessesProved),
               .gated = context.counter(kAccessesGated),
               .data_dependent = context.counter(kAccessesByData)};
  }
  return *lowered.program;
}

}  // namespace telegrad
