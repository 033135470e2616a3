// How a kernel reaches the elements of a value: for each axis, which of the kernel's ranges its
// index is made of. It says as much about a position as the fusion decision needs, how often it is
// computed and whether two are the same, at a fraction of what real index expressions cost.
#pragma once

#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "engine/ir/graph.h"

namespace telegrad {

// A set of a kernel's ranges, by bit.
using RangeSet = uint64_t;

struct AxisUse {
  uint64_t hash = 0;    // equal: the same index; 0: always index 0
  RangeSet ranges = 0;  // that the index depends on
  friend bool operator==(const AxisUse&, const AxisUse&) = default;
};

struct Access {
  absl::InlinedVector<AxisUse, 4> axes;
  uint64_t gate = 0;  // which PADs it has passed; 0: none

  uint64_t Hash() const;
  RangeSet ranges() const;
  friend bool operator==(const Access&, const Access&) = default;
};

// The access to the source of `movement`, a movement op that is reached by `access`.
Access AccessSource(UOp movement, const Access& access);

}  // namespace telegrad
