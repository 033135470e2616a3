// A model on a server, for any number of sets of inputs: an ONNX file, or a plan with its weights.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client/cc/remote_plan.h"
#include "client/cli/onnx_data.h"

namespace telegrad::cli {

class ModelSession {
 public:
  virtual ~ModelSession() = default;

  virtual const std::vector<onnx::ValueInfo>& inputs() const = 0;
  virtual const std::vector<onnx::ValueInfo>& outputs() const = 0;

  // Prepares the model for these inputs, where it is not by now. Needs no server.
  virtual absl::Status Import(std::vector<onnx::OnnxData> inputs) = 0;
  // Sends the model, unless the server has it, and the inputs.
  virtual absl::Status Send(RemoteSession* session) = 0;
  virtual RemotePlan* plan() = 0;
  virtual absl::StatusOr<std::vector<onnx::OnnxData>> Results() = 0;
  virtual int imports() const = 0;
};

// Of an ONNX file: `server_import`: it is sent unchanged, and the server imports it. `ranges`:
// sizes of its named dimensions for which one import is to do. INVALID_ARGUMENT for both.
struct ModelOptions {
  bool server_import = false;
  std::map<std::string, DimRange, std::less<>> ranges = {};
};

// Of the file's kind.
absl::StatusOr<std::unique_ptr<ModelSession>> OpenModel(const std::string& path,
                                                        ModelOptions options);

// The error of a model that has `names` as inputs and was given another number of them.
absl::Status WrongInputs(const std::vector<onnx::ValueInfo>& inputs, size_t given);

}  // namespace telegrad::cli
