// What is staged (staging.h) for processors: what a tile reads again and again is copied first,
// next to each other, in the order in which the tile reads it and without gates.
#pragma once

#include "engine/rewrite/pass.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// At most so many bytes are copied for one loop nest: none where no worker has a cache to itself.
double PanelBytes(const Target& target);

// The kernel is as the moves leave it. Where PanelBytes are 0 it stays so. Else a vector load
// inside of a reduction, which the loops inside of those that it depends on repeat, is replaced by
// one from a packed copy. Only where that is worth it. The copy is
//   a new argument  where the load is of a weight and each of its elements is read about once in
//                   all of the loops: the piece's packings name the kernel that makes it
//   private memory  else, filled anew in each iteration of the loops that it depends on
absl::StatusOr<UOp> StageLoads(Rewriter& b, Piece* piece, const Target& target);

}  // namespace telegrad
