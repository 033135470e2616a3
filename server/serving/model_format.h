// The kinds of models that are served, and how each is called in the protocol and on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/serving/model_files.h"

namespace telegrad {

enum class ModelFormat : uint8_t { kOnnx, kPlan, kEnsemble };

struct ModelFormatInfo {
  std::string_view
      file;  // its name in the folder of a version, where nothing else is said; "": none
  std::string_view platform;  // by which configurations and metadata name it
  std::string_view backend;
  std::string_view what;  // for people
};
inline constexpr ModelFormatInfo kModelFormats[] = {
    {"model.onnx", "onnxruntime_onnx", "onnxruntime", "an ONNX model"},
    {"model.safetensors", "telegrad_plan", "telegrad", "a saved plan"},
    {"", "ensemble", "", "an ensemble"},
};

inline const ModelFormatInfo& Info(ModelFormat format) {
  return kModelFormats[static_cast<size_t>(format)];
}

// Of a file, by its content.
ModelFormat FormatOf(std::string_view file);

// The model's file in the folder of a version: `said`, or the one of a format's name that is there.
// FAILED_PRECONDITION where there are several.
absl::StatusOr<std::string> ModelFileIn(const ModelFolder& folder, const std::string& said);

}  // namespace telegrad
