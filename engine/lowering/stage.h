// Staging: what a tile reads again and again is copied into private memory first.
#pragma once

#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// `sink` is as the moves leave it. A vector load inside of a fold, which the loops inside of those
// that it depends on repeat, is replaced by one from a packed copy in private memory: next to each
// other, in the order in which the fold reads them, without gates. The copy is made anew in each
// iteration of the loops that it depends on. Only where that is worth it.
// A copy that is read less often costs more than it saves.
inline constexpr double kMinReuse = 6;

// At most so many bytes are copied for one loop nest.
double PanelBytes(const Target& target);

UOp StageLoads(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
