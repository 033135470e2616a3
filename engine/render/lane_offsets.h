// A vector of addresses as one scalar address and what each lane adds to it: by that an access is
// found to be contiguous, strided, or made of aligned pieces.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

// Lane i of the index is the sum of factor * scalar over the terms, plus lanes[i], modulo 2^64.
// lanes[0] is `constant`'s: it is 0.
struct LaneOffsets {
  struct Term {
    UOp scalar;
    int64_t factor;
  };
  std::vector<Term> terms;
  int64_t constant = 0;
  std::vector<int64_t> lanes;

  // The distance from each lane to the next where all have the same; else 0.
  int64_t Stride() const;
  // The bounds of the terms' sum where it can be computed in i32, in their order: all of them are
  // i32, and no product and no sum wraps.
  std::optional<Interval> NarrowSum() const;
  // Powers of two that divide the lanes' indices.
  std::vector<int64_t> Divisors() const;
};

// nullopt where what a lane adds depends on more than its number, or where a sum narrower than 64
// bits may wrap.
std::optional<LaneOffsets> SplitLanes(UOp index);

// The largest power of two, up to 2^30, that is known to divide the integer scalar.
int64_t DivisorOf(UOp scalar);

}  // namespace telegrad
