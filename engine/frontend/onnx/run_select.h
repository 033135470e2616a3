// Selections whose size only the run knows: storage for as many elements as there could be, of
// which the first are used (NodeContext::RunSize).
#pragma once

#include "engine/frontend/onnx/node_context.h"

namespace telegrad::onnx {

// How many elements of a mask hold, as a size.
absl::StatusOr<Dim> RunCount(NodeContext& c, const Tensor& mask);

// The operators of operators_select.cc.
absl::Status NonZeroOfRun(NodeContext& c);
absl::Status CompressOfRun(NodeContext& c);
absl::Status UniqueOfRun(NodeContext& c);
absl::Status NonMaxSuppressionOfRun(NodeContext& c);  // run_suppression.cc

}  // namespace telegrad::onnx
