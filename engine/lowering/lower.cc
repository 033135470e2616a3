#include "engine/lowering/lower.h"

#include <utility>

#include "engine/lowering/moves/move.h"
#include "engine/lowering/passes.h"

namespace telegrad {
namespace {

// One list of moves, given or chosen, carried out and proved.
class Attempt {
 public:
  Attempt(const FrozenGraph& kernel, const Target& target, std::string name, Budget* budget,
          const PassOptions& options)
      : piece_(KernelPiece(kernel, std::move(name), options.weights, options.results, budget)),
        context_(piece_.graph.get(), target, budget) {
    piece_.given_moves = options.moves;
  }

  absl::StatusOr<Program> Run(const PassOptions& options) {
    const std::span<const PassRow> rows = LoweringPasses();
    TG_ASSIGN_OR_RETURN(
        piece_, RunPasses(rows.first(rows.size() - 1), context_, std::move(piece_), options));
    moves_ = piece_.program->moves;
    TG_ASSIGN_OR_RETURN(const Piece proved,
                        RunPasses(rows.last(1), context_, std::move(piece_), options));
    return *proved.program;
  }

  // After Run: threads may race, as far as the proof knows.
  bool refused() const { return context_.counter(kPairsUnproved) > 0; }
  const std::string& moves() const { return moves_; }

  void AddTo(BoundsStats* stats) const {
    if (stats == nullptr) return;
    *stats += {.proved = context_.counter(kAccessesProved),
               .gated = context_.counter(kAccessesGated),
               .data_dependent = context_.counter(kAccessesByData)};
  }

 private:
  Piece piece_;
  PassContext context_;
  std::string moves_;
};

// Lists of moves with less that is parallel than the one that is refused.
std::vector<std::string> SaferLists(const std::string& refused) {
  std::vector<std::string> out;
  if (auto moves = ParseMoves(refused); moves.ok()) {
    const auto shared = [](const Move& move) { return move.kind == Move::Kind::kThread; };
    if (std::erase_if(*moves, shared) > 0) out.push_back(Print(*moves));
  }
  out.emplace_back();
  return out;
}

}  // namespace

absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, BoundsStats* stats, const PassOptions& options) {
  const Budget::Doing doing(budget, "lowering");
  Attempt first(kernel, target, name, budget, options);
  absl::StatusOr<Program> program = first.Run(options);
  if (program.ok()) first.AddTo(stats);
  if (!first.refused()) return program;
  if (options.moves) {
    return FailedPrecondition("moves: the kernel cannot have this list: ",
                              ToStd(program.status().message()));
  }
  for (std::string& moves : SaferLists(first.moves())) {
    PassOptions safer = options;
    safer.moves = std::move(moves);
    Attempt next(kernel, target, name, budget, safer);
    absl::StatusOr<Program> slow = next.Run(safer);
    if (slow.ok()) next.AddTo(stats);
    if (slow.ok() || absl::IsResourceExhausted(slow.status())) return slow;
    TG_RETURN_IF_ERROR(budget->CheckTime());
  }
  return program;
}

}  // namespace telegrad
