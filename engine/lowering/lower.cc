#include "engine/lowering/lower.h"

#include <utility>

#include "engine/lowering/passes.h"

namespace telegrad {

absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, BoundsStats* stats, const PassOptions& options) {
  const Budget::Doing doing(budget, "lowering");
  Piece piece;
  piece.name = std::move(name);
  piece.graph = std::make_shared<Graph>();
  piece.graph->LimitSize(budget);
  piece.root = CopyLive(kernel.root(), piece.graph.get());
  piece.arguments = KernelArguments(kernel.root());
  MarkWeights(options.weights, &piece.arguments);
  piece.levels = kKernelLevel;
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
