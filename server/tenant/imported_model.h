// Graphs as they come from outside, decoded and verified: of a client's message, or of a model file
// together with the contents of its weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/hash.h"
#include "engine/frontend/onnx/import.h"
#include "engine/ir/graph.h"

namespace telegrad {

struct VerifiedGraph {
  FrozenGraph graph;
  Digest hash;
};

// A slot of a graph that was made of a model, see ImportedSlot in compute.proto.
struct ImportedSlot {
  enum class Role : uint8_t { kInput, kOutput, kWeight };
  Role role = Role::kInput;
  std::string name = {};
  std::vector<std::string> model_names = {};
  DType dtype = DType::kVoid;
  Shape shape = {};
  int64_t bytes = 0;
  uint64_t handle = 0;  // of a weight, once it has one
};

// What a model's inputs and outputs are, by slots, and the inputs on whose values it depends.
struct ImportedInterface {
  std::vector<OnnxValue> inputs, outputs;
  std::vector<std::string> guards;
};

struct ImportedModel {
  VerifiedGraph graph;
  int64_t graph_bytes = 0;  // serialized
  std::vector<ImportedSlot> slots;
  ImportedInterface interface;
  int64_t slot_bytes = 0;                  // that these and the slots take
  std::vector<std::string_view> contents;  // by slot, of the weights: in the file, or in
  std::shared_ptr<const void> keep;
};

}  // namespace telegrad
