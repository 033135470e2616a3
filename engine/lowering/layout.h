// In which order a buffer has the elements of a tile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// An axis of a tile: how many iterations there are, and how many elements are left free behind them
// wherever the axis around it takes a step, so that what is neighbouring there falls onto other
// banks.
struct LayoutAxis {
  int64_t size = 1, gap = 0;
};

struct Layout {
  std::vector<LayoutAxis> axes = {};  // outermost first: along the last one elements are neighbours

  // Of the buffer, with all gaps.
  int64_t elements() const;
  // The number of the element at `place`, a position along each axis.
  UOp At(Rewriter& b, std::span<const UOp> place) const;
  // One step of that: `number` is that of the axes around the one at which `place` ends.
  UOp Step(Rewriter& b, UOp number, std::span<const UOp> place) const;
};

}  // namespace telegrad
