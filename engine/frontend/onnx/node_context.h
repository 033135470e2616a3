// What an operator's function sees: its inputs, its attributes and where its results go.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/values.h"
#include "engine/frontend/tensor/dims.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad::onnx {

// Who imports the graphs in a node's attributes.
class GraphImporter {
 public:
  // The results of the graph, in their order, with its inputs bound to `inputs`. It sees the names
  // of the graphs around it. `inputs` may be fewer than the graph has where those have
  // initializers.
  virtual absl::StatusOr<std::vector<ValueRef>> ImportGraph(
      const GraphProto& graph, const std::vector<ValueRef>& inputs) = 0;

 protected:
  ~GraphImporter() = default;
};

class NodeContext {
 public:
  NodeContext(const Node* node, int64_t opset, Values* values, GraphImporter* graphs)
      : node_(node), opset_(opset), values_(values), graphs_(graphs) {}

  const Node& node() const { return *node_; }
  int64_t opset() const { return opset_; }  // of the node's domain
  Values& values() { return *values_; }
  Builder& builder() { return *values_->builder(); }

  // Inputs. An optional input may be missing at the end or have an empty name.
  int num_inputs() const { return static_cast<int>(node_->inputs.size()); }
  bool HasInput(int i) const { return i < num_inputs() && !node_->inputs[i].empty(); }
  absl::StatusOr<Tensor> Input(int i);
  // Also what is no tensor: a sequence, an optional, strings.
  absl::StatusOr<ValueRef> Get(int i);
  // The content if it is at hand and has at most that many bytes, else null.
  absl::StatusOr<const HostTensor*> Known(int i, int64_t most_bytes = INT64_MAX);
  // The content of an input that must be known at import, because it decides a shape or a choice.
  // It is computed where it depends on constants and inputs whose values the caller of the import
  // has given; else an error names the inputs.
  absl::StatusOr<const HostTensor*> Content(int i);
  // As Content: of integers, and of one float or integer.
  absl::StatusOr<std::vector<int64_t>> Numbers(int i);
  absl::StatusOr<double> Number(int i);
  // As Numbers, but sizes that only the run knows stay as they are.
  absl::StatusOr<Dims> Sizes(int i);
  // An axis that is as long as the run says: a scalar of integers, cut off at 0 and at the bound,
  // for which there is storage. Where the sizes of a run are wanted at import, UNIMPLEMENTED.
  absl::StatusOr<Dim> RunSize(const Tensor& value, int64_t bound) {
    return values_->RunSize(value, bound);
  }
  // Whether a shape that depends on values of inputs is to be found when the model runs: one of
  // them (there may be fewer) depends on more than constants, and sizes of the run are allowed.
  absl::StatusOr<bool> DecidedByRun(std::initializer_list<int> inputs);
  absl::StatusOr<const StringTensor*> InputStrings(int i);

  // Attributes; the default if the node does not have it. Every attribute that a node has must be
  // read, or ignored because it makes no difference: see Finish.
  bool HasAttribute(std::string_view name) const { return Peek(name) != nullptr; }
  absl::StatusOr<int64_t> Int(std::string_view name, int64_t otherwise);
  absl::StatusOr<float> Float(std::string_view name, float otherwise);
  absl::StatusOr<std::string_view> String(std::string_view name, std::string_view otherwise);
  absl::StatusOr<std::vector<int64_t>> Ints(std::string_view name, std::vector<int64_t> otherwise);
  absl::StatusOr<const Attribute*> Required(std::string_view name, AttributeType type);
  absl::StatusOr<std::vector<float>> Floats(std::string_view name, std::vector<float> otherwise);
  absl::StatusOr<std::vector<std::string_view>> Strings(std::string_view name);
  // As Ints, from the attribute in opsets before `since` and from input `i` from then on.
  absl::StatusOr<std::vector<int64_t>> IntsOrInput(std::string_view name, int i, int64_t since);
  void Ignore(std::string_view name) { read_.insert(name); }
  // Numbers that an operator itself brings, as a weight of the plan.
  absl::StatusOr<Tensor> Weight(HostTensor value);
  // One element, as a CONST of shape [].
  absl::StatusOr<Tensor> Constant(const HostTensor& value);
  // Input `i` if its elements are floats.
  absl::StatusOr<Tensor> FloatInput(int i);
  // Input `i` of shape [] if it has one element.
  absl::StatusOr<Tensor> ScalarInput(int i);

  // Results, in order. The error of the builder if the tensor is invalid.
  absl::Status Output(const Tensor& tensor);
  absl::Status OutputKnown(HostTensor value);
  absl::Status OutputKnown(const TensorProto* value);  // of the node
  // The same value both ways: as a tensor that costs no weight, and known at import.
  absl::Status OutputBoth(const Tensor& tensor, HostTensor value);

  absl::Status OutputStrings(StringTensor value);
  absl::Status OutputValue(ValueRef value);
  // How many results were made.
  size_t outputs() const { return outputs_; }
  // Result `i` is there and has a name, so that somebody may read it.
  bool WantsOutput(size_t i) const {
    return i < node_->outputs.size() && !node_->outputs[i].empty();
  }

  // The graph of an attribute.
  absl::StatusOr<const GraphProto*> Body(std::string_view name);
  absl::StatusOr<std::vector<ValueRef>> ImportGraph(const GraphProto& graph,
                                                    const std::vector<ValueRef>& inputs) {
    return graphs_->ImportGraph(graph, inputs);
  }

  // UNIMPLEMENTED if an attribute was not read or a result was not made.
  absl::Status Finish() const;

 private:
  const Attribute* Peek(std::string_view name) const;
  // The attribute, marked as read, null if there is none.
  absl::StatusOr<const Attribute*> Take(std::string_view name, AttributeType type);

  const Node* node_;
  int64_t opset_;
  Values* values_;
  GraphImporter* graphs_;
  size_t outputs_ = 0;
  std::set<std::string_view> read_;
};

// Integers of a known i64 or i32 tensor.
absl::StatusOr<std::vector<int64_t>> ToIntegers(const HostTensor& tensor);

}  // namespace telegrad::onnx
