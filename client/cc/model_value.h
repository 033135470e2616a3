// Inputs and outputs of models on the wire (ModelValue of compute.proto), as a client writes and
// reads them; server/service/model_value.h is the other side.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "telegrad/v1/compute.pb.h"

namespace telegrad {

void ToProto(const onnx::OnnxData& data, v1::ModelValue* out);

// INTERNAL where it names a slot that is none of `slots`.
absl::StatusOr<OnnxValue> ToOnnxValue(const v1::ModelValue& value, size_t slots);

}  // namespace telegrad
