// The fast Fourier transform as a graph.
#pragma once

#include <cstdint>

#include "engine/frontend/onnx/node_context.h"

namespace telegrad::onnx {

struct Complex {
  Tensor real, imaginary;  // the latter invalid of a real signal
};

// Whether a real signal of that length, which has no half, is transformed as a complex one faster
// than by a matrix.
bool IsOddLength(int64_t length);

// Whether FastFourier takes a transform of that length: its prime factors are small.
bool IsFastLength(int64_t length);
inline constexpr int64_t kMaxChirpLength = int64_t{1} << 20;
// Whether ChirpFourier does, and is faster than a product with a matrix.
bool IsChirpLength(int64_t length);
// Whether RealFourier does, likewise.
bool IsRealLength(int64_t length);

// Of the last axis, in the element type that it has, without the inverse's scale. Both parts are
// valid; `sign` is 1 for the inverse.
Complex FastFourier(const Complex& x, double sign);

// The same of any length: the first `bins` results of x, which has at most `length` elements and is
// 0 behind them. The imaginary part may be invalid.
absl::StatusOr<Complex> ChirpFourier(NodeContext& c, const Complex& x, int64_t length, int64_t bins,
                                     double sign);

// The same of a real signal of an even length, at most `length` results.
Complex RealFourier(const Tensor& x, int64_t bins, double sign);

}  // namespace telegrad::onnx
