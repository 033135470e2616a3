// Inputs and outputs of models on the wire (ModelValue of compute.proto), as the server reads and
// writes them; client/cc/model_value.h is the other side.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

// A value that a client gives at an import; takes what is large out of it.
absl::StatusOr<onnx::OnnxData> ToOnnxData(v1::ModelValue& value);

void ToProto(const OnnxValue& value, v1::ModelValue* out);

}  // namespace telegrad
