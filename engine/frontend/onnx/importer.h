// The state of an import, and its steps, which lie in import.cc (the model and its nodes),
// import_bounds.cc (inputs and outputs) and import_graphs.cc (graphs in nodes, calls of functions).
#pragma once

#include <deque>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/frontend/onnx/import.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/refusals.h"
#include "engine/frontend/onnx/values.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad::onnx {

// Marks errors of options.
inline constexpr absl::string_view kOptionsUrl = "telegrad/onnx-options";
// Marks errors that values of inputs may change.
inline constexpr absl::string_view kValuesUrl = "telegrad/onnx-values";

template <typename... Args>
absl::Status OptionsError(const Args&... args) {
  absl::Status out = InvalidArgument(args...);
  out.SetPayload(kOptionsUrl, {});
  return out;
}

// The status with where it happened, still an error of options if it was one.
absl::Status At(std::string_view where, const absl::Status& status);

// What the nodes of a graph, or of a function's body, are read with.
struct Frame {
  const OpsetVersions* opsets;
  const Function* function = nullptr;
  std::map<std::string_view, const Attribute*> attributes = {};  // of the function's caller
};

class Importer : public GraphImporter {
 public:
  Importer(const Model& model, const ImportOptions& options, Budget* budget, RunSizes run_sizes)
      : model_(model),
        options_(options),
        budget_(budget),
        held_(budget),
        values_(&builder_, budget, run_sizes),
        frame_{.opsets = &model.opsets} {
    for (const Function& f : model.functions) functions_[FunctionKey(f.domain, f.name)] = &f;
  }

  absl::StatusOr<OnnxPlan> Run() {
    TG_RETURN_IF_ERROR(CheckModel());
    TG_RETURN_IF_ERROR(Unsupported(model_, functions_).ToStatus());
    TG_RETURN_IF_ERROR(Initializers(model_, {}));
    TG_RETURN_IF_ERROR(Inputs());
    TG_RETURN_IF_ERROR(ImportNodes(model_.nodes, &refused_));
    TG_RETURN_IF_ERROR(refused_.ToStatus());
    TG_RETURN_IF_ERROR(Outputs());
    TG_ASSIGN_OR_RETURN(out_.plan, builder_.Finish());
    TG_RETURN_IF_ERROR(FixSizes());
    out_.weights = values_.TakeWeights();
    for (const int slot : values_.guards()) guards_.insert(input_of_slot_.at(slot));
    out_.guards.assign(guards_.begin(), guards_.end());
    return std::move(out_);
  }

  // Whether something asked in vain for the value of an input.
  bool missed_values() const { return values_.missed_inputs(); }
  // Whether finding the sizes of the run at import would have made a difference.
  bool asked_run_sizes() const { return values_.asked_run_sizes(); }

  absl::StatusOr<std::vector<ValueRef>> ImportGraph(const GraphProto& graph,
                                                    const std::vector<ValueRef>& inputs) override;

 private:
  using Functions = std::map<FunctionKey, const Function*>;

  absl::Status CheckModel() const;
  absl::Status Initializers(const GraphProto& graph, std::span<const ValueRef> bound);
  absl::Status Inputs();
  absl::StatusOr<ValueRef> Input(const ValueInfo& input, OnnxValue* out);
  absl::StatusOr<ValueRef> InputOf(const ValueInfo& input, const OnnxData& data,
                                   std::string_view name, OnnxValue* out);
  absl::StatusOr<ValueRef> InputTensor(const ValueInfo& input, const Dims& dims,
                                       std::string_view name, OnnxValue* out);
  absl::StatusOr<Dims> InputDims(const ValueInfo& input);
  absl::Status ImportNodes(const std::vector<Node>& nodes, Refusals* refused);
  absl::Status Import(const Node& node);
  absl::Status ImportOperator(const Node& node);
  absl::Status Call(const Function& function, const Node& node);
  absl::StatusOr<const Node*> Resolve(const Node& node);
  absl::Status CheckSizes(const Node& node);
  absl::Status Deeper();
  absl::Status SpendGrowth();
  absl::Status Outputs();
  absl::Status FixSizes();
  absl::StatusOr<OnnxValue> Output(const ValueInfo& output, Value* value);

  const Model& model_;
  const ImportOptions& options_;
  Budget* const budget_;
  Budget::Held held_;             // the graph's memory
  Budget::Held copies_{budget_};  // that of resolved_ and bodies_
  int64_t nodes_spent_ = 0;       // of the graph
  Builder builder_;
  Values values_;
  Functions functions_;
  Frame frame_;
  int depth_ = 0;                              // of graphs in nodes and calls of functions
  std::deque<Node> resolved_;                  // nodes of functions with their callers' attributes
  std::deque<std::vector<Node>> bodies_;       // of functions called with fewer inputs
  std::map<int, std::string> input_of_slot_;   // the model's name
  std::map<std::string_view, Dim> variables_;  // by the name of the dimension
  std::set<std::string> guards_;
  Refusals refused_;
  bool stores_ = false;
  OnnxPlan out_;
};

}  // namespace telegrad::onnx
