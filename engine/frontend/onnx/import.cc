// The importer walks the nodes in the file's order, which ONNX demands to be topological: every
// name that a node reads must be defined by then. Each node is one call of its row's function on
// Tensors, so shapes and types are checked by the graph itself. What this file adds is where an
// error was.
#include "engine/frontend/onnx/import.h"

#include <algorithm>

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

bool IsDefaultDomain(std::string_view domain) { return domain.empty() || domain == "ai.onnx"; }

// "node 'conv1' (Conv)", or by its result if it has no name.
std::string Describe(const Node& node) {
  if (!node.name.empty()) return StrCat("node '", node.name, "' (", node.op_type, ")");
  const std::string_view result = node.outputs.empty() ? "" : node.outputs[0];
  return StrCat("the node of '", result, "' (", node.op_type, ")");
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
  Importer(const Model& model, const ImportOptions& options)
      : model_(model), options_(options), values_(&builder_) {}

  absl::StatusOr<OnnxPlan> Run() {
    TG_RETURN_IF_ERROR(CheckModel());
    for (const TensorProto& t : model_.initializers) {
      TG_RETURN_IF_ERROR(values_.DefineInitializer(&t));
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
  absl::Status Outputs();

  const Model& model_;
  const ImportOptions& options_;
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
  for (const auto& [name, shape] : options_.input_shapes) {
    if (std::ranges::find(model_.inputs, name, &ValueInfo::name) == model_.inputs.end()) {
      return InvalidArgument("ONNX: the model has no input '", name,
                             "', for which a shape is given");
    }
  }
  for (const auto& [name, size] : options_.dims) {
    const bool used = std::ranges::any_of(model_.inputs, [&](const ValueInfo& input) {
      return std::ranges::find(input.shape, name, &Dimension::param) != input.shape.end();
    });
    if (!used) {
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
    const std::string where = StrCat("input '", input.name, "'");
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
  if (builder_.graph().size() > kMaxNodes) {
    return ResourceExhausted("the graph has more than ", kMaxNodes, " nodes");
  }
  return context.Finish();
}

// A slot of the plan needs a name of its own, even if the output is an input or a weight.
absl::Status Importer::Outputs() {
  for (const ValueInfo& output : model_.outputs) {
    const std::string where = StrCat("output '", output.name, "'");
    absl::StatusOr<Tensor> tensor = values_.GetTensor(output.name);
    if (!tensor.ok()) return At(where, tensor.status());
    if (output.elem_type != 0 && output.elem_type != Info(tensor->dtype()).onnx) {
      return At(where, InvalidArgument("is declared with element type ", output.elem_type,
                                       " and computed as ", Name(tensor->dtype())));
    }
    std::string name(output.name);
    while (std::ranges::find(builder_.slots(), name, &Slot::name) != builder_.slots().end()) {
      name += ".out";
    }
    const int slot = builder_.Output(*tensor, name);
    if (!builder_.status().ok()) return At(where, builder_.status());
    out_.outputs.push_back({std::string(output.name), slot});
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace onnx

absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  absl::StatusOr<onnx::Model> model = onnx::ParseModel(bytes);
  if (!model.ok())
    return absl::Status(model.status().code(), StrCat("ONNX: ", ToStd(model.status().message())));
  return onnx::Importer(*model, options).Run();
}

}  // namespace telegrad
