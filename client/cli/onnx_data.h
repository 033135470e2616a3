// Inputs and outputs of ONNX models as files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"

namespace telegrad::cli {

// A .pb file holds what `type` says, any other file one tensor (engine/frontend/io).
absl::StatusOr<onnx::OnnxData> ReadOnnxData(const std::string& path, const onnx::ValueInfo& type);

// A tensor, as .pb or .npy. UNIMPLEMENTED for what is none.
absl::Status WriteOnnxData(const std::string& path, const onnx::OnnxData& data,
                           std::string_view name);
bool IsWritable(std::string_view path);  // ends in .pb or .npy

struct Tolerance {
  double rtol = 0, atol = 0;
};

// The largest difference, as numpy.allclose counts it, or FAILED_PRECONDITION with the first
// element that differs by more, or types and shapes that do. Integers must be equal.
absl::StatusOr<double> LargestError(const onnx::OnnxData& want, const onnx::OnnxData& got,
                                    const Tolerance& tolerance);

// The inputs that a caller provides: those without an initializer of the same name.
std::vector<onnx::ValueInfo> CallerInputs(const onnx::Model& model);

// The status of reading or importing the model in `path`. It names the file, and is
// INVALID_ARGUMENT, which the program reports as wrong usage, only where options do not fit the
// model.
absl::Status OfModelFile(const std::string& path, const absl::Status& status);

// The folder of a file, "." where the path has none.
std::string FolderOf(const std::string& path);

}  // namespace telegrad::cli
