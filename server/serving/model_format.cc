// Tells formats apart by the first byte of the file, and finds the model's file in its folder.
#include "server/serving/model_format.h"

#include "engine/base/status.h"
#include "engine/frontend/io/safetensors.h"

namespace telegrad {

// An ONNX file begins with the tag of a field, which no header of safetensors of any allowed length
// has there.
ModelFormat FormatOf(std::string_view file) {
  return LooksLikeSafetensors(file) ? ModelFormat::kPlan : ModelFormat::kOnnx;
}

absl::StatusOr<std::string> ModelFileIn(const ModelFolder& folder, const std::string& said) {
  if (!said.empty()) return said;
  std::string found, names;
  for (const ModelFormatInfo& format : kModelFormats) {
    if (format.file.empty()) continue;
    StrAppend(&names, names.empty() ? "" : " or ", format.file);
    if (!folder.Has(format.file)) continue;
    if (!found.empty()) {
      return FailedPrecondition("there are ", found, " and ", format.file,
                                " in the version's folder; remove one, or name the one to be "
                                "served as default_model_filename in config.pbtxt");
    }
    found = format.file;
  }
  if (!found.empty()) return found;
  // One that is there but cannot be opened, such as a link, says why.
  for (const ModelFormatInfo& format : kModelFormats) {
    if (format.file.empty()) continue;
    const absl::Status opened = folder.OpenFile(format.file).status();
    if (!absl::IsNotFound(opened)) TG_RETURN_IF_ERROR(opened);
  }
  return NotFound("there is no ", names, " in the version's folder");
}

}  // namespace telegrad
