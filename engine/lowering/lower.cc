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

  BoundsStats bounds() const {
    return {.proved = context_.counter(kAccessesProved),
            .gated = context_.counter(kAccessesGated),
            .data_dependent = context_.counter(kAccessesByData)};
  }

 private:
  Piece piece_;
  PassContext context_;
  std::string moves_;
};

// The pass that makes loops over blocks of rows, and the threads that share them.
constexpr std::string_view kRowsInBlocks = "online";

}  // namespace

std::vector<std::string> SaferLists(const std::string& refused) {
  std::vector<std::string> out;
  if (auto moves = ParseMoves(refused); moves.ok()) {
    bool rings = false;
    for (Move& move : *moves) rings |= std::exchange(move.ring, 1) != 1;
    if (rings) out.push_back(Print(*moves));
    for (const Move::Kind kind : {Move::Kind::kStage, Move::Kind::kThread}) {
      const auto is = [&](const Move& move) { return move.kind == kind; };
      if (std::erase_if(*moves, is) > 0) out.push_back(Print(*moves));
    }
  }
  if (out.empty() || !out.back().empty()) out.emplace_back();
  return out;
}

absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, LoweringReport* report, const PassOptions& options) {
  const Budget::Doing doing(budget, "lowering");
  Attempt first(kernel, target, name, budget, options);
  absl::StatusOr<Program> program = first.Run(options);
  if (program.ok() && report != nullptr) report->bounds += first.bounds();
  if (!first.refused()) return program;
  if (options.moves) {
    return FailedPrecondition("moves: the kernel cannot have this list: ",
                              ToStd(program.status().message()));
  }
  std::vector<PassOptions> attempts;
  for (std::string& moves : SaferLists(first.moves())) {
    attempts.push_back(options);
    attempts.back().moves = std::move(moves);
  }
  std::vector<std::string> disabled(options.disabled.begin(), options.disabled.end());
  disabled.emplace_back(kRowsInBlocks);
  attempts.push_back(attempts.back());
  attempts.back().disabled = disabled;
  for (const PassOptions& safer : attempts) {
    Attempt next(kernel, target, name, budget, safer);
    absl::StatusOr<Program> slow = next.Run(safer);
    if (slow.ok() && report != nullptr) {
      report->bounds += next.bounds();
      report->refused = ToStd(program.status().message());
    }
    if (slow.ok() || absl::IsResourceExhausted(slow.status())) return slow;
    TG_RETURN_IF_ERROR(budget->CheckTime());
  }
  return program;
}

}  // namespace telegrad
