// The models that a server serves: what there is, and a request to one, over the Open Inference
// Protocol.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cc/connection.h"
#include "engine/frontend/tensor/host_tensor.h"

namespace telegrad {

struct ModelRow {
  std::string name, version;
  std::string state;   // READY, LOADING, UNAVAILABLE
  std::string reason;  // of a state that is not READY
};

struct ModelTensor {
  std::string name;
  std::string datatype;  // as the protocol names it, FP32
  Shape shape;           // -1: any size
};

struct ModelInfo {
  std::string name;
  std::vector<std::string> versions;
  std::vector<ModelTensor> inputs, outputs;
};

struct ModelCounts {
  std::string name, version;
  uint64_t inferences = 0, executions = 0, failed = 0, succeeded = 0;
  uint64_t total_ns = 0, queue_ns = 0, compute_ns = 0;  // of those that succeeded
  uint64_t memory = 0;                                  // bytes of weights
};

struct NamedTensor {
  std::string name;
  HostTensor tensor;
};

// Thread-safe. Errors are the server's.
class ModelClient {
 public:
  explicit ModelClient(std::shared_ptr<Connection> connection)
      : connection_(std::move(connection)) {}

  absl::StatusOr<std::vector<ModelRow>> List();
  absl::Status Load(const std::string& model);
  absl::Status Unload(const std::string& model);
  // `version`: empty for the newest.
  absl::StatusOr<ModelInfo> Describe(const std::string& model, const std::string& version = "");
  // Of all models, or of one.
  absl::StatusOr<std::vector<ModelCounts>> Statistics(const std::string& model = "");
  absl::StatusOr<std::vector<NamedTensor>> Infer(const std::string& model,
                                                 const std::string& version,
                                                 const std::vector<NamedTensor>& inputs);

 private:
  const std::shared_ptr<Connection> connection_;
};

// The element type of that name in the protocol; kVoid where there is none.
DType DTypeOfDatatype(std::string_view datatype);

}  // namespace telegrad
