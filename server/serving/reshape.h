// Tensors whose shape in requests is another than the model's: the same elements in row-major
// order. Dimensions of -1 are the same in both, in their order.
#pragma once

#include "absl/status/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// INVALID_ARGUMENT unless each shape of the one kind has one of the other: as many dimensions of
// -1, and as many elements before, between and behind them.
absl::Status CheckReshape(ShapeView from, ShapeView to);

// What `shape`, which fits `from`, is as `to` has it.
Shape Reshaped(ShapeView shape, ShapeView from, ShapeView to);

}  // namespace telegrad
