// Values of a tensor at positions between its elements.
#pragma once

#include <vector>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad::onnx {

// One of the elements that a position on an axis is interpolated from.
struct SampleTap {
  Tensor at;      // i64: the element
  Tensor weight;  // or invalid: 1
  Tensor inside;  // bool: the element is there; or invalid: it always is
};

// The sum over all combinations of taps, one of each axis, of the elements there times the weights.
// `x` is [B, C, axes...], the taps' tensors [B, P], the result [B, C, P].
Tensor SampleTaps(const Tensor& x, const std::vector<std::vector<SampleTap>>& axes);

// The two elements around each position, those outside of [0, size) left out.
std::vector<SampleTap> LinearTaps(const Tensor& position, int64_t size);

}  // namespace telegrad::onnx
