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
// then others by what is predicted for them.
struct RankedMoves {
  MoveList moves;
  double cycles = 0;
};
std::vector<RankedMoves> RankMoves(UOp sink, std::span<const Program::Argument> arguments,
                                   const Target& target, size_t most);
// What the same model predicts for a list without PEELs, in cycles, or for workgroups in the unit
// of CostOfGroups (choose/group_cost.h); infinite where its tile does not fit.
double PredictCycles(UOp sink, std::span<const Program::Argument> arguments, const Target& target,
                     const MoveList& moves);
inline constexpr int kPeelRounds = 3;  // after each the ranges are separated

// The same of a target that has workgroups: by CostOfGroups (choose/group_cost.h).
std::vector<RankedMoves> RankForGroups(UOp sink, std::span<const Program::Argument> arguments,
                                       const Target& target, size_t most);
double PredictForGroups(UOp sink, std::span<const Program::Argument> arguments,
                        const Target& target, const MoveList& moves);

}  // namespace telegrad
