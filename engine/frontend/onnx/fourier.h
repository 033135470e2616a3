// The fast Fourier transform as a graph.
#pragma once

#include <cstdint>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad::onnx {

struct Complex {
  Tensor real, imaginary;  // the latter invalid of a real signal
};

// exp(sign 2 pi i k n / length) for n < rows, k < columns; k n is taken modulo the length first, so
// that the angle is exact.
Complex Roots(Builder& b, int64_t length, int64_t rows, int64_t columns, double sign, DType type);

// Whether FastFourier takes a transform of that length: its prime factors are small.
bool IsFastLength(int64_t length);

// Of the last axis, in the element type that it has, without the inverse's scale. Both parts are
// valid; `sign` is 1 for the inverse.
Complex FastFourier(const Complex& x, double sign);

}  // namespace telegrad::onnx
