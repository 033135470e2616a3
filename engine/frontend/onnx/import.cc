// The importer walks the nodes in the file's order, which ONNX demands to be topological: every
// name that a node reads must be defined by then. Each node is one call of its row's function on
// Tensors, so shapes and types are checked by the graph itself. What this file adds is where an
// error was.
#include "engine/frontend/onnx/import.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/values.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace onnx {
namespace {

constexpr size_t kMaxNodeInputs = 4096;

// How much of a name from the model an error repeats.
constexpr size_t kShownBytes = 256;

bool IsDefaultDomain(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

// "node 'conv1' (Conv)", or by its result if it has no name.
std::string Describe(const Node& node) {
  const std::string_view op = node.op_type.substr(0, kShownBytes);
  if (!node.name.empty()) return StrCat("node '", node.name.substr(0, kShownBytes), "' (", op, ")");
  const std::string_view result = node.outputs.empty() ? "" : node.outputs[0];
  return StrCat("the node of '", result.substr(0, kShownBytes), "' (", op, ")");
}

absl::Status At(std::string_view where, const absl::Status& status) {
  return absl::Status(status.code(), StrCat("ONNX: ", where, ": ", ToStd(status.message())));
}

std::string SupportedNames() {
  std::string out;
  for (const Operator& row : AllOperators()) StrAppend(&out, out.empty() ? "" : ", ", row.name);
  return out;
}

class Importer {
 public:
  Importer(const Model& model, const ImportOptions& options, Budget* budget)
      : model_(model),
        options_(options),
        budget_(budget),
        held_(budget),
        values_(&builder_, budget) {}

  absl::StatusOr<OnnxPlan> Run() {
    TG_RETURN_IF_ERROR(CheckModel());
    for (const TensorProto& t : model_.initializers) {
      TG_RETURN_IF_ERROR(values_.DefineProto(t.name, &t));
    }
    TG_RETURN_IF_ERROR(Inputs());
    for (const Node& node : model_.nodes) {
      if (absl::Status s = Import(node); !s.ok()) return At(Describe(node), s);
    }
    TG_RETURN_IF_ERROR(Outputs());
    TG_ASSIGN_OR_RETURN(out_.plan, builder_.Finish());
    out_.weights = values_.TakeWeights();
    return std::move(out_);
  }

 private:
  absl::Status CheckModel() const;
  absl::Status Inputs();
  absl::StatusOr<Shape> InputShape(const ValueInfo& input) const;
  absl::Status Import(const Node& node);
  absl::Status SpendGrowth();
  absl::Status Outputs();
  std::string SlotName(std::string_view output);

  const Model& model_;
  const ImportOptions& options_;
  Budget* const budget_;
  Budget::Held held_;                          // the graph's memory
  int64_t nodes_spent_ = 0;                    // of the graph
  std::map<std::string, int64_t> slot_names_;  // each with how many outputs were named after it
  size_t slots_named_ = 0;                     // that are in there
  Builder builder_;
  Values values_;
  OnnxPlan out_;
};

absl::Status Importer::CheckModel() const {
  if (model_.opset < kMinOpset || model_.opset > kMaxOpset) {
    return Unimplemented("ONNX: opset ", model_.opset, " is not supported, only ", kMinOpset,
                         " to ", kMaxOpset);
  }
  if (model_.has_functions)
    return Unimplemented("ONNX: model-local functions are not supported; inline them first");
  if (model_.has_sparse)
    return Unimplemented("ONNX: sparse initializers are not supported; store them dense");
  if (model_.outputs.empty()) return InvalidArgument("ONNX: the model has no outputs");
  std::set<std::string_view> names, params;
  for (const ValueInfo& input : model_.inputs) {
    names.insert(input.name);
    for (const Dimension& dim : input.shape) params.insert(dim.param);
  }
  for (const auto& [name, shape] : options_.input_shapes) {
    if (!names.contains(name)) {
      return InvalidArgument("ONNX: the model has no input '", name,
                             "', for which a shape is given");
    }
  }
  for (const auto& [name, size] : options_.dims) {
    if (name.empty() || !params.contains(name)) {
      return InvalidArgument("ONNX: no input has a dimension '", name,
                             "', for which a size is given");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Shape> Importer::InputShape(const ValueInfo& input) const {
  if (const auto it = options_.input_shapes.find(input.name); it != options_.input_shapes.end()) {
    return it->second;
  }
  if (!input.has_shape) return InvalidArgument("has no shape: give one in input_shapes");
  Shape out;
  for (size_t i = 0; i < input.shape.size(); ++i) {
    const Dimension& dim = input.shape[i];
    const auto given = options_.dims.find(dim.param);
    if (!dim.param.empty() && given != options_.dims.end()) {
      out.push_back(given->second);
    } else if (dim.param.empty() && dim.value >= 0) {
      out.push_back(dim.value);
    } else {
      return InvalidArgument("axis ", i, " has the dynamic dimension '", dim.param,
                             "': give its size in dims, or a shape in input_shapes");
    }
  }
  return out;
}

// Before IR version 4 initializers are listed among the inputs, as defaults.
absl::Status Importer::Inputs() {
  for (const ValueInfo& input : model_.inputs) {
    if (values_.Has(input.name)) continue;
    const std::string where = StrCat("input '", input.name.substr(0, kShownBytes), "'");
    const auto dtype = input.elem_type >= 1 && input.elem_type <= 1000
                           ? DTypeFromOnnx(static_cast<int>(input.elem_type))
                           : std::nullopt;
    if (!dtype) {
      return At(where, Unimplemented("element type ", input.elem_type, " is not supported"));
    }
    absl::StatusOr<Shape> shape = InputShape(input);
    if (!shape.ok()) return At(where, shape.status());
    const int slot = static_cast<int>(builder_.slots().size());
    const Tensor tensor = builder_.Param(*dtype, *shape, input.name);
    if (!builder_.status().ok()) return At(where, builder_.status());
    TG_RETURN_IF_ERROR(values_.DefineTensor(input.name, tensor));
    out_.inputs.push_back({std::string(input.name), slot});
  }
  return absl::OkStatus();
}

absl::Status Importer::Import(const Node& node) {
  if (!IsDefaultDomain(node.domain)) {
    return Unimplemented("operators of the domain '", node.domain, "' are not supported");
  }
  const Operator* row = FindOperator(node.op_type);
  if (row == nullptr) {
    return Unimplemented("the operator is not supported; supported are ", SupportedNames());
  }
  const size_t n = node.inputs.size();
  if (n < static_cast<size_t>(row->min_inputs) || n > kMaxNodeInputs ||
      (row->max_inputs >= 0 && n > static_cast<size_t>(row->max_inputs))) {
    return InvalidArgument("has ", n, " inputs, expected ", row->min_inputs,
                           row->max_inputs < 0 ? " or more" : StrCat(" to ", row->max_inputs));
  }
  NodeContext context(&node, model_.opset, &values_);
  TG_ASSIGN_OR_RETURN(const bool folded, TryFold(context));
  if (!folded) TG_RETURN_IF_ERROR(row->function(context));
  TG_RETURN_IF_ERROR(builder_.status());
  TG_RETURN_IF_ERROR(SpendGrowth());
  return context.Finish();
}

// What the graph has grown by.
absl::Status Importer::SpendGrowth() {
  const int64_t nodes = builder_.graph().size();
  if (nodes > kMaxNodes) {
    return ResourceExhausted("the graph has more than ", kMaxNodes, " nodes");
  }
  TG_RETURN_IF_ERROR(budget_->SpendNodes(nodes - std::exchange(nodes_spent_, nodes)));
  TG_RETURN_IF_ERROR(held_.GrowTo(builder_.graph().bytes()));
  return budget_->CheckTime();
}

// Not taken yet. "y", else "y.out", "y.out2" and so on.
std::string Importer::SlotName(std::string_view output) {
  for (; slots_named_ < builder_.slots().size(); ++slots_named_) {
    slot_names_.emplace(builder_.slots()[slots_named_].name, 0);
  }
  std::string name(output);
  while (!slot_names_.emplace(name, 0).second) {
    const int64_t n = ++slot_names_[std::string(output)];
    name = StrCat(output, ".out", n == 1 ? "" : StrCat(n));
  }
  return name;
}

// A slot of the plan needs a name of its own, even if the output is an input or a weight.
absl::Status Importer::Outputs() {
  for (const ValueInfo& output : model_.outputs) {
    const std::string where = StrCat("output '", output.name.substr(0, kShownBytes), "'");
    absl::StatusOr<Tensor> tensor = values_.GetTensor(output.name);
    if (!tensor.ok()) return At(where, tensor.status());
    if (output.elem_type != 0 && output.elem_type != Info(tensor->dtype()).onnx) {
      return At(where, InvalidArgument("is declared with element type ", output.elem_type,
                                       " and computed as ", Name(tensor->dtype())));
    }
    const int slot = builder_.Output(*tensor, SlotName(output.name));
    if (!builder_.status().ok()) return At(where, builder_.status());
    TG_RETURN_IF_ERROR(SpendGrowth());
    out_.outputs.push_back({std::string(output.name), slot});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace onnx

absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options,
                                    Budget* budget) {
  const Budget::Doing doing(budget, "importing the model");
  absl::StatusOr<onnx::Model> model = onnx::ParseModel(bytes);
  if (!model.ok())
    return absl::Status(model.status().code(), StrCat("ONNX: ", ToStd(model.status().message())));
  return onnx::Importer(*model, options, budget).Run();
}

absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  Budget budget;
  return ImportOnnx(bytes, options, &budget);
}

}  // namespace telegrad
