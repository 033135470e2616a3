// Lists of moves that heuristics pick.
#pragma once

#include <span>
#include <vector>

#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/lowering/moves/move.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// Lists that are good for the target at once, without measuring: JOINs that make a sum of products
// one of two matrices, for a target that has workgroups; PEELs; and once these are applied and the
// ranges separated the others.
MoveList PickJoins(UOp sink, const Target& target);
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
// not fit, and 0 where there is no model.
double PredictCycles(UOp sink, std::span<const Program::Argument> arguments, const Target& target,
                     const MoveList& moves);
inline constexpr int kPeelRounds = 3;  // after each the ranges are separated

// The list of PickMoves for a target that has workgroups, for which there is no model of cycles.
MoveList PickWorkgroupMoves(UOp sink, const Target& target);

}  // namespace telegrad
