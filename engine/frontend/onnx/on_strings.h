// Tensors of strings through operators that move or compare elements, whatever these are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {

// Runs the node on numbers in place of its strings, which compare as they do, and turns them back
// in its results. False if the node has no strings or the operator is not of that kind. The results
// are defined in `values`.
absl::StatusOr<bool> ImportOnStrings(const Operator& row, const Node& node, int64_t opset,
                                     Values* values, GraphImporter* graphs);

}  // namespace telegrad::onnx
