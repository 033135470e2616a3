// Slices whose begin or end only the run knows, or whose axis has a size of the run.
#pragma once

#include "engine/frontend/onnx/node_context.h"

namespace telegrad::onnx {

// Whether a Slice node is one, and sizes of the run are allowed.
absl::StatusOr<bool> SliceDecidedByRun(NodeContext& c, const Tensor& x);
absl::Status SliceOfRun(NodeContext& c, Tensor x);

}  // namespace telegrad::onnx
