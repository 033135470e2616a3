// The named values of a model while it is imported: initializers, inputs and results of nodes.
#pragma once

#include <deque>
#include <map>
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
// CONST instead, so that it folds into the kernels.
class Values {
 public:
  explicit Values(Builder* builder) : builder_(builder) {}

  // Each is INVALID_ARGUMENT if the name is taken. Initializers are read when first used; the
  // pointer must outlive this.
  absl::Status DefineInitializer(const TensorProto* proto);
  absl::Status DefineTensor(std::string_view name, Tensor tensor);
  absl::Status DefineKnown(std::string_view name, HostTensor value);

  absl::Status DefineBoth(std::string_view name, Tensor tensor, HostTensor value);

  bool Has(std::string_view name) const { return values_.contains(name); }
  absl::StatusOr<Tensor> GetTensor(std::string_view name);
  // Null if the value is only known when the plan runs.
  absl::StatusOr<const HostTensor*> GetKnown(std::string_view name);

  std::vector<OnnxWeight> TakeWeights();
  Builder* builder() const { return builder_; }

 private:
  struct Value {
    Tensor tensor;
    const TensorProto* proto = nullptr;  // not read yet
    int known = -1;                      // index of known_
  };
  struct Known {
    HostTensor value;
    int slot = -1;
  };

  absl::Status Define(std::string_view name, Value value);
  absl::StatusOr<Value*> Find(std::string_view name);
  absl::StatusOr<Tensor> Materialize(std::string_view name, Known* known);

  Builder* builder_;
  std::map<std::string_view, Value> values_;
  std::deque<Known> known_;
};

// One element as a CONST of shape [].
Tensor ConstantOf(Builder& builder, const HostTensor& value);

}  // namespace telegrad::onnx
