// Sums of products of small integers, computed in f32: exactly, and several times as fast as in
// i32, for which processors have no fused multiply-add.
#pragma once

#include <functional>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad::onnx {

// The product of matrices of i32 as i32. Where their values are known to be small, the terms are
// added in f32 as long as every sum is below 2^24, and the sums in i32.
Tensor MatMulOfIntegers(const Tensor& a, const Tensor& b);

// The same of a convolution of x [N, C, ...] with w [O, C / groups, ...]: `conv` computes it of
// some of the channels.
using Convolve = std::function<absl::StatusOr<Tensor>(const Tensor& x, const Tensor& w)>;
absl::StatusOr<Tensor> ConvolutionOfIntegers(const Tensor& x, const Tensor& w,
                                             const Convolve& conv);

}  // namespace telegrad::onnx
