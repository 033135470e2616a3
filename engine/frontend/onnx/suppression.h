// What the two ways of NonMaxSuppression share: boxes, and what becomes of them.
#pragma once

#include "engine/frontend/onnx/node_context.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {

// Corners in their order, [..., n] each.
struct Boxes {
  Tensor y1, x1, y2, x2;

  template <typename F>
  Boxes Each(F f) const {
    return {f(y1), f(x1), f(y2), f(x2)};
  }
  Tensor Area() const { return (y2 - y1) * (x2 - x1); }
};

// Whether boxes overlap by more than the threshold, broadcast.
Tensor Overlaps(const Boxes& a, const Boxes& b, const Tensor& threshold);

// The boxes of batch * classes rows and their scores; n is padded, the run may decide the batch.
struct ScoredBoxes {
  Tensor scores;    // f32 [batch, classes, n]
  Tensor eligible;  // bool [batch, classes, n]
  Boxes boxes;      // [batch, n]
  Tensor threshold;

  Dim batch() const { return scores.dims()[0]; }
  int64_t classes() const { return scores.dim(1); }
  Dim rows() const { return MulDims(scores.builder(), batch(), classes()); }
  int64_t n() const { return scores.dim(2); }
};

// Candidates for a place among a row's results, in order.
struct Picks {
  Tensor taken;  // bool [rows, places]
  Tensor box;    // i64 [rows, places]
};

// One box after the other: the eligible one with the best score, which ends those that overlap it.
// `most` rounds of two launches over all boxes.
Picks PickOneByOne(Builder& b, const ScoredBoxes& all, int64_t most);

// The best `count` boxes of each row sorted by score, in blocks: as many launches as there are
// blocks, whatever `most` is, and about count * count / 2 overlaps in each row. `count` is a
// multiple of kSuppressionBlock.
Picks PickInBlocks(Builder& b, const ScoredBoxes& all, int64_t count, const Tensor& most);

// n of ScoredBoxes is a multiple of it.
inline constexpr int64_t kSuppressionBlock = 64;

}  // namespace telegrad::onnx
