// Positions that tensors of integers say: what gathers and scatters along axes other than the first
// are made of.
#pragma once

#include <span>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// The product of sizes.
Dim ProductOf(Builder* builder, const Dims& sizes);

// Positions on an axis of size n as i64, counted from its beginning: negative ones count from the
// end. Out of range stays out of range.
Tensor FromBeginning(const Tensor& index, const Dim& n);

// The number of the row that parts[0], parts[1], ... (of one shape, negative ones counted from the
// end) name among axes of `sizes`, in row-major order; -1 where one of them is out of range.
Tensor RowPositions(Builder* builder, std::span<const Tensor> parts, const Dims& sizes);

}  // namespace telegrad
