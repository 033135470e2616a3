// Lists of moves: picked by heuristics, and carried out. moves/apply.h checks them before.
#pragma once

#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/lowering/moves/move.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// A move and its RANGE.
struct RangeMove {
  Move::Kind kind;
  UOp range;
  int64_t amount = 0;
  int axis = 0;
};

// Joins neighbouring ranges that every access walks as one. Only where that saves lanes, and where
// the gates of a reduction's windows are all that can tell them apart, gates get both from their
// product.
UOp MergeRanges(Rewriter& b, UOp sink, const Target& target);

// Lists that are good for the target at once, without measuring: PEELs, and once these are applied
// and the ranges separated the others.
MoveList PickPeels(UOp sink, std::span<const Program::Argument> arguments, const Target& target);
MoveList PickMoves(UOp sink, std::span<const Program::Argument> arguments, const Target& target);

// What the choice of PickMoves was made of: at most `most` lists, the one that it returns first,
// then others by the cycles that are predicted for their heaviest work.
struct RankedMoves {
  MoveList moves;
  double cycles = 0;
};
std::vector<RankedMoves> RankMoves(UOp sink, std::span<const Program::Argument> arguments,
                                   const Target& target, size_t most);
// The cycles that the same model predicts for a list without PEELs; infinite where its tile does
// not fit.
double PredictCycles(UOp sink, std::span<const Program::Argument> arguments, const Target& target,
                     const MoveList& moves);
inline constexpr int kPeelRounds = 3;  // after each the ranges are separated

// A list for a target that has workgroups.
MoveList PickWorkgroupMoves(UOp sink, const Target& target);

// Peels, or splits the ranges. Where the amounts do not divide a size, the last tile is moved back
// until it is whole, and computes some elements again; or, where an argument is both written and
// read or the tile is larger than the size, it is rounded up, and the stores, and the loads that
// would leave their buffers, are gated.
absl::StatusOr<UOp> ApplyMoves(Rewriter& b, UOp sink, const std::vector<RangeMove>& moves);

// Splits the ranges of a kernel for a workgroup's threads; the moves of one range stand in their
// order from the outermost part to the lanes. Every root then closes the same GROUP and LOCAL
// ranges, at least one. Ranges with LOCAL parts on the same axis are iterated by the same threads:
// no LOAD, STORE or reduction depends on two of them. What the amounts do not divide is rounded up:
// loads and stores of the iterations that the kernel does not have are gated, reductions skip them.
// A store that does not depend on an axis is done by its first thread.
absl::StatusOr<UOp> ApplyWorkgroupMoves(Rewriter& b, UOp sink, const std::vector<RangeMove>& moves,
                                        const Target& target);

}  // namespace telegrad
