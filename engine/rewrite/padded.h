// Values whose sizes only the run knows, kept at their bounds: a dimension of n elements, at most
// N, is one of N, whose first n hold the value. What the others hold is defined but means nothing,
// so whoever reduces, moves or stores them asks which they are.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

struct RunDim {
  int64_t bound = 0;
  UOp size;  // an i64 scalar, at most `bound`; invalid: always `bound`

  bool fixed() const { return !size.valid(); }
  friend bool operator==(const RunDim&, const RunDim&) = default;
};

struct Padded {
  UOp value;  // its shape: the bounds
  std::vector<RunDim> dims;
};

std::vector<int64_t> BoundsOf(std::span<const RunDim> dims);

// `x` with the word in place of what lies beyond the sizes of `axes`.
UOp Fill(Graph* g, const Padded& x, std::span<const int64_t> axes, int64_t word);

// The movement ops. A symbolic offset of PAD or SHRINK is bounded, too; sources without elements
// there give zeros.
Padded Reshape(Graph* g, const Padded& x, std::vector<RunDim> to);
Padded Expand(Graph* g, const Padded& x, std::vector<RunDim> to);
Padded Flip(Graph* g, const Padded& x, std::span<const int64_t> axes);
Padded Pad(Graph* g, const Padded& x, std::span<const RunDim> offsets, std::vector<RunDim> sizes);
Padded Shrink(Graph* g, const Padded& x, std::span<const RunDim> offsets,
              std::vector<RunDim> sizes);

}  // namespace telegrad
