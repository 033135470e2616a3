// Where the forms of a version of a model come from: the model, read for inputs of certain
// shapes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/frontend/onnx/import.h"
#include "server/serving/model_files.h"
#include "server/tenant/imported_model.h"

namespace telegrad {

// What is bound to inputs, by name, for a model that depends on it.
using InputValues = std::map<std::string, std::shared_ptr<const onnx::OnnxData>, std::less<>>;

// A model file as it was read, through the door of imports of sessions.
struct ReadForm {
  ImportedModel model;
  InputValues strings;              // outputs that are no tensors of the graph, by name
  std::vector<std::string> guards;  // inputs on whose given values all of this depends
};
using ReadModel = std::function<absl::StatusOr<ReadForm>(
    std::string_view file, const ImportOptions& options, Budget* budget)>;

// Thread-safe.
class FormSource {
 public:
  virtual ~FormSource() = default;
  // What is read keeps what its contents refer to.
  virtual absl::StatusOr<ReadForm> Read(const ImportOptions& options, Budget* budget) = 0;
};

// A model in a file.
class FileFormSource final : public FormSource {
 public:
  FileFormSource(std::shared_ptr<ModelSource> files, ReadModel read)
      : files_(std::move(files)), read_(std::move(read)) {}
  absl::StatusOr<ReadForm> Read(const ImportOptions& options, Budget* budget) override;

 private:
  const std::shared_ptr<ModelSource> files_;
  const ReadModel read_;
};

}  // namespace telegrad
