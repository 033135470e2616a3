// Shape arithmetic that the tensor operations share. Sizes come from users and files: all of it is
// checked.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// The axis of a tensor of `rank` that a possibly negative number means.
absl::StatusOr<int64_t> ResolveAxis(std::string_view op, int64_t axis, int64_t rank);
// Every axis resolved and sorted; an error if one appears twice.
absl::StatusOr<Axes> ResolveAxes(std::string_view op, const Axes& axes, int64_t rank);

// NumPy's broadcast of two shapes; a symbolic axis meets itself or 1. The error names both shapes
// and the axis of the result.
absl::StatusOr<Dims> Broadcast(std::string_view op, const Dims& a, const Dims& b);
// The same of fixed sizes.
absl::StatusOr<Shape> BroadcastShapes(std::string_view op, ShapeView a, ShapeView b);

inline Shape ToShape(ShapeView shape) { return Shape(shape.begin(), shape.end()); }
inline int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }  // a >= 0, b > 0

}  // namespace telegrad
