// Attention of four axes, which the operators of several domains end in.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad::onnx {

// Softmax(softcap(scale Q K') + bias) V: q [B, H, L, D], k [B, H / n, S, D], v [B, H / n, S, E].
struct AttentionTerms {
  Tensor q, k, v;
  Tensor bias;  // added; or invalid
  Tensor seen;  // bool: which keys each query sees; or invalid: all
  double scale = 1;
  double softcap = 0;                 // none
  DType precision = DType::kFloat32;  // of the softmax
};

struct AttentionSteps {
  Tensor out;                               // of q's type; a query that sees nothing gives 0
  Tensor product, capped, biased, weights;  // in at least f32
};

AttentionSteps Attend(const AttentionTerms& terms);

// Heads out of a packed last axis, [B, L, heads * D] -> [B, heads, L, D], and back.
absl::StatusOr<Tensor> SplitLastAxis(const Tensor& x, int64_t heads, std::string_view what);
Tensor JoinHeads(const Tensor& x);

// a and b, where either may be invalid.
Tensor Both(const Tensor& a, const Tensor& b);

// The first `rotated` elements of each head of x [B, heads, L, D] turned by the angles of
// cos, sin [B or 1, L, rotated / 2].
absl::StatusOr<Tensor> RotateHeads(const Tensor& x, const Tensor& cos, const Tensor& sin,
                                   int64_t rotated, bool interleaved);

// The update written into a cache along `axis` from `first` [batch] on.
Tensor WriteCache(const Tensor& cache, const Tensor& update, const Tensor& first, int64_t axis,
                  bool circular);

}  // namespace telegrad::onnx
