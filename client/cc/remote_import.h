// Models that the server imports: the client sends a model file unchanged, and receives the slots
// of its graph. RemoteSession::Import sends one, RemotePlan::Create makes a plan of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

namespace v1 {
class ImportResult;
}

struct RemoteImportOptions {
  std::string format = "onnx";
  ImportOptions model = {};  // shapes and sizes that the model leaves open, and values of inputs
  std::string device = {};   // of the weights; "": that of ConnectOptions
  bool compile = false;      // now, not on the first run
};

struct RemoteModel {
  struct Value {
    Slot slot;                       // kState: a weight, which is filled
    std::vector<std::string> names;  // that the model gives it
    uint64_t handle = 0;             // of a weight's buffer
  };
  Digest hash;
  std::vector<Value> slots;  // inputs and outputs are in the model's order, each among themselves
  // What the model's inputs and outputs are, by these slots. Empty of servers that do not say it.
  std::vector<OnnxValue> inputs, outputs;
  std::vector<std::string> guards;  // see OnnxPlan
};

// INTERNAL where the answer breaks the protocol.
absl::StatusOr<RemoteModel> ToRemoteModel(const v1::ImportResult& result);

}  // namespace telegrad
