// The named values of a model while it is imported: initializers, inputs and results of nodes.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"

namespace telegrad::onnx {

// A value is a tensor of the graph, or known on the host (an initializer or a constant), or both.
// A known value becomes a weight of the plan when a node first needs it as a tensor; until then it
// costs nothing, and one that only tells a shape never reaches the plan. One element becomes a
// CONST instead, so that it folds into the kernels. A weight's content stays in the file where that
// has it as raw bytes.
class Values {
 public:
  Values(Builder* builder, Budget* budget) : builder_(builder), held_(budget) {}

  // Each is INVALID_ARGUMENT if the name is taken, too long or not UTF-8. A TensorProto is read
  // when first used; the pointer must outlive this.
  absl::Status DefineProto(std::string_view name, const TensorProto* proto);
  absl::Status DefineTensor(std::string_view name, Tensor tensor);
  absl::Status DefineKnown(std::string_view name, HostTensor value);

  absl::Status DefineBoth(std::string_view name, Tensor tensor, HostTensor value);

  bool Has(std::string_view name) const { return values_.contains(name); }
  absl::StatusOr<Tensor> GetTensor(std::string_view name);
  // Null if the value is only known when the plan runs, or has more than `most_bytes`.
  absl::StatusOr<const HostTensor*> GetKnown(std::string_view name, int64_t most_bytes = INT64_MAX);

  // A value without a name in the model.
  absl::StatusOr<Tensor> Weight(HostTensor value);

  std::vector<OnnxWeight> TakeWeights() { return std::move(weights_); }
  Builder* builder() const { return builder_; }

 private:
  struct Value {
    Tensor tensor = {};
    const TensorProto* proto = nullptr;                 // the file's, or
    std::shared_ptr<const HostTensor> known = nullptr;  // what was read of it, or computed
  };

  absl::Status Define(std::string_view name, Value value);
  absl::Status Keep(HostTensor value, Value* out);
  absl::StatusOr<Value*> Find(std::string_view name);
  absl::Status Read(Value* value);
  absl::StatusOr<Tensor> Materialize(std::string_view name, Value* value);

  Builder* builder_;
  Budget::Held held_;
  std::map<std::string_view, Value> values_;
  std::vector<OnnxWeight> weights_;
  int64_t unnamed_ = 0;  // weights
};

// One element as a CONST of shape [].
Tensor ConstantOf(Builder& builder, const HostTensor& value);

}  // namespace telegrad::onnx
