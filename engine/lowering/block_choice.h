// Whether and how a reduction is done in blocks (block.h), chosen by what its loops read.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "engine/lowering/kernel_shape.h"
#include "engine/lowering/loop_order.h"
#include "engine/lowering/stage.h"
#include "engine/types/target.h"

namespace telegrad {

struct BlockChoice {
  int folded = -1;                                      // the range; -1: not in blocks
  int64_t amount = 0;                                   // its iterations in a block
  size_t outside = std::numeric_limits<size_t>::max();  // how many of the loops stay outside
  int64_t parts = 0;   // the next loop's iterations that are a part of their own; 0: all are one
  int64_t upcast = 0;  // of the innermost loop, not more than it was; 0: as it was
};

inline constexpr int kBlockRanges = 24;  // that blocks may make

// Bytes that a block's panel may take, and that the accumulators may: both together are a copy that
// is not too large.
inline double PartBytes(const Target& target) { return PanelBytes(target) / 2; }

// `upcast`: by range, how many iterations, or vectors of them, are computed together; `widths`: by
// range, how many are lanes, of which `lanes` has those of more than one.
BlockChoice ChooseBlocks(const KernelShape& shape, const Work& work, const LoopOrder& order,
                         const std::vector<int64_t>& upcast, const std::vector<int64_t>& widths,
                         RangeSet lanes, const Target& target);

}  // namespace telegrad
