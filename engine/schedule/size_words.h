// Sizes as arguments of views have them: a number, or a reference to the source that computes it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ir/graph.h"

namespace telegrad {

// The sources of a view of `x` (RESHAPE, EXPAND, PAD, SHRINK) while the words of its argument are
// written: after `x`, each size that is not a number, once.
class SizeWords {
 public:
  explicit SizeWords(UOp x) : sources_{x} {}

  // The word for a size: `size`, an i64 scalar of the same graph, or `number` where that is
  // invalid.
  int64_t Of(int64_t number, UOp size);
  // That for a dim of `like`.
  int64_t Dim(UOp like, size_t axis) {
    return Of(like.shape()[axis], like.dim(static_cast<int>(axis)));
  }

  std::span<const UOp> sources() const { return sources_; }

 private:
  std::vector<UOp> sources_;
};

// The first part of `x` with the dims of `like`, a value of the same graph and rank: a SHRINK.
// Where the two have the same dims, `x` itself.
UOp ShrinkLike(Graph* g, UOp x, UOp like);
// The movement op `view` of `x` in place of its source, which has the same dims.
UOp ViewOf(Graph* g, UOp view, UOp x);

// Whether the elements that a run has lie together at the beginning of a value's memory, whose
// strides are those of the bounds: no size but the outermost one is symbolic. Sizes of 1 in front
// of it do not matter.
bool IsPrefix(UOp x);

}  // namespace telegrad
