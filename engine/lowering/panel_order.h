// In which direction an operand's elements are neighbours in memory, and how many of them one
// access may have.
#pragma once

#include <cstdint>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// The largest power of two, up to `most`, that divides `count` and the size of `range`, such that
// so many iterations of the range, from a multiple of it on, are neighbours in memory, begin at a
// multiple of it, and are all loaded or all not.
int64_t NeighboursAlong(Rewriter& b, UOp load, UOp range, int64_t count, int64_t most);

// So many iterations of a range that a tile has.
struct PanelSide {
  UOp range;
  int64_t tile;
};
// How many elements of an operand a thread copies at once, up to `most`: along the reduced range or
// the tile's. Its graph stays as it is.
int64_t PieceOf(UOp load, const PanelSide& side, const PanelSide& reduced, int64_t most);

// Whether elements are neighbours along the reduced range rather than along the tile's.
bool RunsAlongReduced(Rewriter& b, UOp load, UOp tile, UOp reduced);

}  // namespace telegrad
