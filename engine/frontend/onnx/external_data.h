// Weights that lie in files beside a model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"

namespace telegrad {
namespace onnx {

// Gives every tensor of the model whose elements are in another file a view of them.
// UNIMPLEMENTED: the options have no way to read such files. INVALID_ARGUMENT: a part lies outside
// of its file.
absl::Status ReadExternal(const ImportOptions& options, Model* model);

}  // namespace onnx

// The files below a folder, read when first asked for and kept as long as this lives. No location
// leads out of the folder, and none through a symbolic link.
class ExternalFiles {
 public:
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}
  ExternalFiles(const ExternalFiles&) = delete;
  ExternalFiles& operator=(const ExternalFiles&) = delete;
  ~ExternalFiles();

  // For ImportOptions::external. INVALID_ARGUMENT for a location outside of the folder, NOT_FOUND.
  absl::StatusOr<std::string_view> Content(std::string_view location);

 private:
  struct Mapping {
    void* data = nullptr;
    size_t size = 0;
  };
  static absl::Status Read(int fd, Mapping* file);

  std::string folder_;
  std::map<std::string, Mapping, std::less<>> files_;
};

}  // namespace telegrad
