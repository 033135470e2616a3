// What an operator's function sees: its inputs, its attributes and where its results go.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/values.h"
#include "engine/frontend/tensor.h"

namespace telegrad::onnx {

class NodeContext {
 public:
  NodeContext(const Node* node, int64_t opset, Values* values)
      : node_(node), opset_(opset), values_(values) {}

  const Node& node() const { return *node_; }
  int64_t opset() const { return opset_; }
  Builder& builder() { return *values_->builder(); }

  // Inputs. An optional input may be missing at the end or have an empty name.
  int num_inputs() const { return static_cast<int>(node_->inputs.size()); }
  bool HasInput(int i) const { return i < num_inputs() && !node_->inputs[i].empty(); }
  absl::StatusOr<Tensor> Input(int i);
  // The value if it is known at import and has at most that many bytes, else null.
  absl::StatusOr<const HostTensor*> Known(int i, int64_t most_bytes = INT64_MAX);
  // The numbers of an integer input that must be known at import, because they decide a shape.
  absl::StatusOr<std::vector<int64_t>> Numbers(int i);
  // A float or integer input of one element that must be known at import.
  absl::StatusOr<double> Number(int i);

  // Attributes; the default if the node does not have it. Every attribute that a node has must be
  // read, or ignored because it makes no difference: see Finish.
  bool HasAttribute(std::string_view name) const { return Peek(name) != nullptr; }
  absl::StatusOr<int64_t> Int(std::string_view name, int64_t otherwise);
  absl::StatusOr<float> Float(std::string_view name, float otherwise);
  absl::StatusOr<std::string_view> String(std::string_view name, std::string_view otherwise);
  absl::StatusOr<std::vector<int64_t>> Ints(std::string_view name, std::vector<int64_t> otherwise);
  absl::StatusOr<std::vector<float>> Floats(std::string_view name, std::vector<float> otherwise);
  absl::StatusOr<std::vector<std::string_view>> Strings(std::string_view name);
  absl::StatusOr<const Attribute*> Required(std::string_view name, AttributeType type);
  // As Ints, from the attribute in opsets before `since` and from input `i` from then on.
  absl::StatusOr<std::vector<int64_t>> IntsOrInput(std::string_view name, int i, int64_t since);
  void Ignore(std::string_view name) { read_.insert(name); }
  // Numbers that an operator itself brings, as a weight of the plan.
  absl::StatusOr<Tensor> Weight(HostTensor value);
  // One element, as a CONST of shape [].
  absl::StatusOr<Tensor> Constant(const HostTensor& value);
  // Input `i` if its elements are floats.
  absl::StatusOr<Tensor> FloatInput(int i);

  // Results, in order. The error of the builder if the tensor is invalid.
  absl::Status Output(const Tensor& tensor);
  absl::Status OutputKnown(HostTensor value);
  absl::Status OutputKnown(const TensorProto* value);  // of the node
  // The same value both ways: as a tensor that costs no weight, and known at import.
  absl::Status OutputBoth(const Tensor& tensor, HostTensor value);

  // UNIMPLEMENTED if an attribute was not read or a result was not made.
  absl::Status Finish() const;

 private:
  const Attribute* Peek(std::string_view name) const;
  // The attribute, marked as read, null if there is none.
  absl::StatusOr<const Attribute*> Take(std::string_view name, AttributeType type);

  const Node* node_;
  int64_t opset_;
  Values* values_;
  size_t outputs_ = 0;
  std::set<std::string_view> read_;
};

// Integers of a known i64 or i32 tensor.
absl::StatusOr<std::vector<int64_t>> ToIntegers(const HostTensor& tensor);

}  // namespace telegrad::onnx
