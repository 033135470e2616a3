// Whole tiles without gates, and a tail for the rest, in loops that end at a number of the run.
#pragma once

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// Where a tile covers a range that ends at a number n which the run gives, each tile has gates,
// though only the last one needs them. Such a loop becomes two: one over the floor(n / tile) whole
// tiles, in which the gates hold and are removed, and a tail for the rest, with gates. The
// iterations of a tile that are no lanes are a loop in the tail, which ends at n, too: of a tile of
// 4 vectors, it computes as many as there are. An iteration of the loop that threads share becomes
// several tiles, of which the last ones end with the tail, so that it stays one launch.
//
// Only conditions that all nests, or all reductions, of a loop need are removed: one that ends at
// another number keeps its gates in both loops.
//
// A reduction becomes the sum of its two parts, so floats are added in another order: this is not
// done where that is fixed. Nor is it done where the gates are a small part of the work, where it
// would make much more code, and for workgroups.
UOp SplitTails(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
