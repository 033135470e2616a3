// The importer walks the nodes in the file's order, which ONNX demands to be topological: every
// name that a node reads must be defined by then. Each node is one call of its row's function on
// Tensors, so shapes and types are checked by the graph itself. What this file adds is where an
// error was.
#include "engine/frontend/onnx/import.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/onnx/external_data.h"
#include "engine/frontend/onnx/importer.h"
#include "engine/frontend/onnx/on_strings.h"
#include "engine/rewrite/generalize.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace onnx {
namespace {

constexpr size_t kMaxNodeInputs = 4096;

}  // namespace

absl::Status At(std::string_view where, const absl::Status& status) {
  absl::Status out(status.code(), StrCat("ONNX: ", where, ": ", ToStd(status.message())));
  if (IsOptionsError(status)) out.SetPayload(kOptionsUrl, {});
  return out;
}

absl::Status Importer::CheckModel() const {
  if (model_.opset < kMinOpset || model_.opset > kMaxOpset) {
    return Unimplemented("ONNX: opset ", model_.opset, " is not supported, only ", kMinOpset,
                         " to ", kMaxOpset);
  }
  if (model_.outputs.empty()) return InvalidArgument("ONNX: the model has no outputs");
  std::set<std::string_view> names, params;
  for (const ValueInfo& input : model_.inputs) {
    names.insert(input.name);
    for (const Dimension& dim : input.shape) params.insert(dim.param);
  }
  for (const auto& [name, shape] : options_.input_shapes) {
    if (!names.contains(name)) {
      return OptionsError("ONNX: the model has no input '", name, "', for which a shape is given");
    }
  }
  for (const auto& [name, value] : options_.values) {
    if (!names.contains(name)) {
      return OptionsError("ONNX: the model has no input '", name, "', for which a value is given");
    }
  }
  std::vector<std::string_view> sized;
  for (const auto& [name, size] : options_.dims) sized.push_back(name);
  for (const auto& [name, range] : options_.ranges) sized.push_back(name);
  for (const std::string_view name : sized) {
    if (name.empty() || !params.contains(name)) {
      return OptionsError("ONNX: no input has a dimension '", name, "', for which a size is given");
    }
  }
  return absl::OkStatus();
}

// Those of inputs that are bound to something else are defaults that nobody needs.
absl::Status Importer::Initializers(const GraphProto& graph, std::span<const ValueRef> bound) {
  const auto given = [&](std::string_view name) {
    for (size_t i = 0; i < bound.size(); ++i) {
      if (graph.inputs[i].name == name) return true;
    }
    return false;
  };
  for (const TensorProto& t : graph.initializers) {
    if (given(t.name)) continue;
    TG_ASSIGN_OR_RETURN(ValueRef value, values_.FromProto(&t));
    TG_RETURN_IF_ERROR(values_.Define(t.name, std::move(value)));
  }
  for (const SparseTensor& t : graph.sparse_initializers) {
    TG_ASSIGN_OR_RETURN(HostTensor dense, ToDense(t));
    TG_ASSIGN_OR_RETURN(ValueRef value, values_.FromKnown(std::move(dense)));
    TG_RETURN_IF_ERROR(values_.Define(t.values.name, std::move(value)));
  }
  return absl::OkStatus();
}

// A node that is not supported does not end the import, so that all of them are told at once: what
// depends on its results is passed over.
absl::Status Importer::ImportNodes(const std::vector<Node>& nodes, Refusals* refused) {
  for (const Node& node : nodes) {
    bool skip = false;
    for (const std::string_view input : node.inputs) {
      if (refused == nullptr || refused->empty() || input.empty()) break;
      const auto value = values_.Get(input);
      skip |= value.ok() && (*value)->kind == Value::Kind::kUnsupported;
    }
    absl::Status status = skip ? absl::OkStatus() : Import(node);
    if (absl::IsUnimplemented(status) && refused != nullptr && builder_.status().ok()) {
      refused->Add(node, OpsetOf(*frame_.opsets, node.domain), ToStd(status.message()));
      skip = true;
      status = absl::OkStatus();
    }
    if (!status.ok()) {
      return depth_ == 0 ? At(Describe(node), status)
                         : absl::Status(status.code(),
                                        StrCat(Describe(node), ": ", ToStd(status.message())));
    }
    for (size_t i = 0; skip && i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty() || values_.Has(node.outputs[i])) continue;
      TG_RETURN_IF_ERROR(values_.Define(
          node.outputs[i], std::make_shared<Value>(Value{.kind = Value::Kind::kUnsupported})));
    }
  }
  return absl::OkStatus();
}

absl::Status Importer::Import(const Node& given) {
  TG_RETURN_IF_ERROR(budget_->SpendNodes());
  TG_ASSIGN_OR_RETURN(const Node* node, Resolve(given));
  if (node->inputs.size() > kMaxNodeInputs) {
    return ResourceExhausted("has ", node->inputs.size(), " inputs; the limit is ", kMaxNodeInputs);
  }
  const auto function = functions_.find(FunctionKey(node->domain, node->op_type));
  if (function != functions_.end()) return Call(*function->second, *node);
  return ImportOperator(*node);
}

absl::Status Importer::ImportOperator(const Node& node) {
  const Operator* row = FindOperator(node.domain, node.op_type);
  if (row == nullptr) return Unimplemented("the operator is not supported");
  const size_t n = node.inputs.size();
  if (n < static_cast<size_t>(row->min_inputs) ||
      (row->max_inputs >= 0 && n > static_cast<size_t>(row->max_inputs))) {
    return InvalidArgument("has ", n, " inputs, expected ", row->min_inputs,
                           row->max_inputs < 0 ? " or more" : StrCat(" to ", row->max_inputs));
  }
  const int64_t opset = OpsetOf(*frame_.opsets, node.domain);
  TG_ASSIGN_OR_RETURN(const bool done, ImportOnStrings(*row, node, opset, &values_, this));
  if (done) return SpendGrowth();
  NodeContext context(&node, opset, &values_, this);
  TG_ASSIGN_OR_RETURN(const bool folded, TryFold(context));
  if (!folded) {
    if (!row->run_sizes) TG_RETURN_IF_ERROR(CheckSizes(node));
    TG_RETURN_IF_ERROR(row->function(context));
  }
  TG_RETURN_IF_ERROR(builder_.status());
  TG_RETURN_IF_ERROR(SpendGrowth());
  return context.Finish();
}

namespace {

// A tensor, or one of a sequence.
bool HasRunSizes(const Value& value) {
  const auto symbolic = [](const Value& v) {
    return v.tensor.valid() && v.tensor.uop().symbolic();
  };
  return symbolic(value) ||
         std::ranges::any_of(value.elements, [&](const ValueRef& v) { return symbolic(*v); });
}

}  // namespace

// Of an operator that makes numbers of its inputs' sizes.
absl::Status Importer::CheckSizes(const Node& node) {
  for (const std::string_view name : node.inputs) {
    if (name.empty()) continue;
    TG_ASSIGN_OR_RETURN(const ValueRef value, values_.Get(name));
    if (!HasRunSizes(*value)) continue;
    return Unimplemented("input '", name.substr(0, kShownBytes),
                         "' has a size that each run decides, which is not supported here");
  }
  return absl::OkStatus();
}

// Sizes that the graph computes become their bounds, and the elements that they leave out are
// masked where they would count. Sizes that each run chooses stay: an executable knows them when it
// runs.
absl::Status Importer::FixSizes() {
  const Graph& graph = *out_.plan.graph.graph;
  bool computed = false;
  for (uint32_t id = 0; id < graph.size(); ++id) {
    computed |= graph.op(id) == Op::kVar && !graph.src(id).empty();
  }
  if (!computed) return absl::OkStatus();
  if (!out_.plan.variables.empty()) {
    return Unimplemented(
        "ONNX: the model has shapes that depend on values; give the sizes of its dimensions as "
        "numbers");
  }
  TG_ASSIGN_OR_RETURN(GeneralForm form, Generalize(out_.plan.graph.root(), {}, budget_));
  out_.plan.graph = std::move(form.graph);
  return absl::OkStatus();
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

}  // namespace onnx

bool NeedsValues(const absl::Status& status) {
  return status.GetPayload(onnx::kValuesUrl).has_value();
}

bool IsOptionsError(const absl::Status& status) {
  return status.GetPayload(onnx::kOptionsUrl).has_value();
}

namespace {

// Errors say what they are about, and whether values of inputs may change them.
absl::StatusOr<OnnxPlan> Marked(absl::StatusOr<OnnxPlan> plan, const onnx::Importer& importer) {
  if (plan.ok()) return plan;
  const absl::Status& error = plan.status();
  const std::string_view text = ToStd(error.message());
  absl::Status status(error.code(), StrCat(text.starts_with("ONNX: ") ? "" : "ONNX: ", text));
  error.ForEachPayload(
      [&](const auto& url, const auto& payload) { status.SetPayload(url, payload); });
  if (importer.missed_values()) status.SetPayload(onnx::kValuesUrl, {});
  return status;
}

}  // namespace

absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options,
                                    Budget* budget) {
  const Budget::Doing doing(budget, "importing the model");
  absl::StatusOr<onnx::Model> model = onnx::ParseModel(bytes);
  if (!model.ok())
    return absl::Status(model.status().code(), StrCat("ONNX: ", ToStd(model.status().message())));
  TG_RETURN_IF_ERROR(onnx::ReadExternal(options, &*model));
  onnx::Importer bounded(*model, options, budget, onnx::RunSizes::kBounded);
  absl::StatusOr<OnnxPlan> plan = bounded.Run();
  if (plan.ok() || !bounded.asked_run_sizes()) return Marked(std::move(plan), bounded);
  // Something has no form for all sizes of a run: then there is one for each.
  onnx::Importer guarded(*model, options, budget, onnx::RunSizes::kAtImport);
  absl::StatusOr<OnnxPlan> again = guarded.Run();
  if (again.ok()) return again;
  // Where either needs values, the first needs fewer.
  if (guarded.missed_values() && bounded.missed_values()) return Marked(std::move(plan), bounded);
  if (!absl::IsUnimplemented(again.status())) return Marked(std::move(again), guarded);
  // Both failed, and either could be what has to change: the error has both reasons.
  absl::StatusOr<OnnxPlan> first = Marked(std::move(plan), bounded);
  const absl::StatusOr<OnnxPlan> second = Marked(std::move(again), guarded);
  absl::Status both(
      absl::StatusCode::kUnimplemented,
      StrCat(ToStd(first.status().message()),
             "\nImporting it for given values fails, too: ", ToStd(second.status().message())));
  if (guarded.missed_values()) both.SetPayload(onnx::kValuesUrl, {});
  return both;
}

absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  Budget budget;
  return ImportOnnx(bytes, options, &budget);
}

}  // namespace telegrad
