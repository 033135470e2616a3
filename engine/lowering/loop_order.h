// The order of a kernel's loops.
#pragma once

#include <vector>

#include "engine/lowering/kernel_shape.h"
#include "engine/types/target.h"

namespace telegrad {

inline constexpr size_t kMaxOrdered = 5;  // of more loops the order stays

struct LoopOrder {
  int thread = -1;         // the range that is sliced over threads; -1: none
  std::vector<int> loops;  // outermost first
};

// `tile`, by range: how many iterations are computed together. Only the outermost loops that all
// stores share are ordered.
// `vectors` are the ranges that are lanes. Work `blocked`, if not negative, may reduce in blocks:
// what a block reads stays in the cache.
LoopOrder OrderLoops(const KernelShape& shape, const std::vector<int64_t>& tile,
                     const Target& target, RangeSet vectors, int blocked);

}  // namespace telegrad
