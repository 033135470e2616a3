// What reductions, scans and orders share: the types that they reduce in, and roots whose
// derivative stays finite.
#pragma once

#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

Axes AllAxes(const Tensor& t);

// Sums and products of integers have at least 32 bits: those of tinygrad, where NumPy's have 64.
DType SumType(DType type);

// The number of elements that are reduced into one, less `less`, at least 0.
Tensor CountOf(const Tensor& x, const Axes& axes, DType type, double less = 0);

// x^(1 / p) of x >= 0. Where x is 0 its derivative is not infinite but 1, so that the 0 that comes
// before it in a norm stays one.
Tensor SafeRoot(const Tensor& x, double p = 2);

// `x` as integers, the larger the later in order: ~x reverses the order of any of them.
Tensor Complement(const Tensor& x);

// The maximum of exponents that a sum of exponentials is shifted by, without a gradient: the shift
// cancels. 0 where it is infinite or NaN, since any number does.
Tensor ExponentShift(const Tensor& max);

}  // namespace telegrad
