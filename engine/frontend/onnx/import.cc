// The importer walks the nodes in the file's order, which ONNX demands to be topological: every
// name that a node reads must be defined by then. Each node is one call of its row's function on
// Tensors, so shapes and types are checked by the graph itself. What this file adds is where an
// error was.
#include "engine/frontend/onnx/import.h"

#include <algorithm>
#include <deque>
#include <set>
#include <span>
#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/onnx/external_data.h"
#include "engine/frontend/onnx/model.h"
#include "engine/frontend/onnx/on_strings.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/refusals.h"
#include "engine/frontend/onnx/values.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace onnx {
namespace {

constexpr size_t kMaxNodeInputs = 4096;

// Marks errors of options.
constexpr absl::string_view kOptionsUrl = "telegrad/onnx-options";

template <typename... Args>
absl::Status OptionsError(const Args&... args) {
  absl::Status out = InvalidArgument(args...);
  out.SetPayload(kOptionsUrl, {});
  return out;
}

absl::Status At(std::string_view where, const absl::Status& status) {
  absl::Status out(status.code(), StrCat("ONNX: ", where, ": ", ToStd(status.message())));
  if (IsOptionsError(status)) out.SetPayload(kOptionsUrl, {});
  return out;
}

// What the nodes of a graph, or of a function's body, are read with.
struct Frame {
  const OpsetVersions* opsets;
  const Function* function = nullptr;
  std::map<std::string_view, const Attribute*> attributes = {};  // of the function's caller
};

// What a copy takes; text and the elements of tensors stay in the file.
size_t BytesOf(const TensorProto& t) { return sizeof(t) + t.dims.size() * sizeof(t.dims[0]); }

int64_t BytesOf(const Attribute& a) {
  size_t bytes = sizeof(Attribute) + a.ints.size() * sizeof(int64_t) +
                 a.floats.size() * sizeof(float) + a.strings.size() * sizeof(std::string_view);
  for (const TensorProto& t : a.tensors) bytes += BytesOf(t);
  if (a.t) bytes += BytesOf(*a.t);
  return static_cast<int64_t>(bytes);
}

int64_t BytesOf(const Node& node) {
  auto bytes = static_cast<int64_t>(sizeof(Node) + (node.inputs.size() + node.outputs.size()) *
                                                       sizeof(std::string_view));
  for (const Attribute& a : node.attributes) bytes += BytesOf(a);
  return bytes;
}

class Importer : public GraphImporter {
 public:
  Importer(const Model& model, const ImportOptions& options, Budget* budget)
      : model_(model),
        options_(options),
        budget_(budget),
        held_(budget),
        values_(&builder_, budget),
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
    out_.weights = values_.TakeWeights();
    for (const int slot : values_.guards()) guards_.insert(input_of_slot_.at(slot));
    out_.guards.assign(guards_.begin(), guards_.end());
    return std::move(out_);
  }

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
  absl::StatusOr<ValueRef> InputTensor(const ValueInfo& input, const Shape& shape,
                                       std::string_view name, OnnxValue* out);
  absl::StatusOr<Shape> InputShape(const ValueInfo& input) const;
  absl::Status ImportNodes(const std::vector<Node>& nodes, Refusals* refused);
  absl::Status Import(const Node& node);
  absl::Status ImportOperator(const Node& node);
  absl::Status Call(const Function& function, const Node& node);
  absl::StatusOr<const Node*> Resolve(const Node& node);
  absl::Status Deeper();
  absl::Status SpendGrowth();
  absl::Status Outputs();
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
  int depth_ = 0;                             // of graphs in nodes and calls of functions
  std::deque<Node> resolved_;                 // nodes of functions with their callers' attributes
  std::deque<std::vector<Node>> bodies_;      // of functions called with fewer inputs
  std::map<int, std::string> input_of_slot_;  // the model's name
  std::set<std::string> guards_;
  Refusals refused_;
  bool stores_ = false;
  OnnxPlan out_;
};

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
  for (const auto& [name, size] : options_.dims) {
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

absl::StatusOr<Shape> Importer::InputShape(const ValueInfo& input) const {
  if (const auto it = options_.input_shapes.find(input.name); it != options_.input_shapes.end()) {
    return it->second;
  }
  if (!input.has_shape) return OptionsError("has no shape: give one in input_shapes");
  Shape out;
  for (size_t i = 0; i < input.shape.size(); ++i) {
    const Dimension& dim = input.shape[i];
    const auto given = options_.dims.find(dim.param);
    if (!dim.param.empty() && given != options_.dims.end()) {
      out.push_back(given->second);
    } else if (dim.param.empty() && dim.value >= 0) {
      out.push_back(dim.value);
    } else {
      return OptionsError("axis ", i, " has the dynamic dimension '", dim.param,
                          "': give its size in dims, or a shape in input_shapes");
    }
  }
  return out;
}

absl::StatusOr<ValueRef> Importer::InputTensor(const ValueInfo& input, const Shape& shape,
                                               std::string_view name, OnnxValue* out) {
  const auto dtype = input.elem_type >= 1 && input.elem_type <= 1000
                         ? DTypeFromOnnx(static_cast<int>(input.elem_type))
                         : std::nullopt;
  if (!dtype) return Unimplemented("element type ", input.elem_type, " is not supported");
  out->slot = static_cast<int>(builder_.slots().size());
  const Tensor tensor = builder_.Param(*dtype, shape, values_.SlotName(name));
  TG_RETURN_IF_ERROR(builder_.status());
  input_of_slot_[out->slot] = std::string(input.name);
  return Values::FromTensor(tensor);
}

// An input, or an element of it, whose content the caller has given.
absl::StatusOr<ValueRef> Importer::InputOf(const ValueInfo& input, const OnnxData& data,
                                           std::string_view name, OnnxValue* out) {
  switch (data.kind) {
    case OnnxData::Kind::kTensor: {
      TG_ASSIGN_OR_RETURN(ValueRef value, InputTensor(input, data.tensor.shape, name, out));
      if (data.tensor.dtype != builder_.slots()[out->slot].dtype) {
        return OptionsError("has element type ", Name(builder_.slots()[out->slot].dtype),
                            ", a value of ", Name(data.tensor.dtype), " is given");
      }
      values_.GiveInput(out->slot, &data.tensor);
      return value;
    }
    case OnnxData::Kind::kSequence: {
      out->kind = OnnxValue::Kind::kSequence;
      guards_.insert(std::string(input.name));
      auto value = std::make_shared<Value>(Value{.kind = Value::Kind::kSequence});
      if (const auto dtype = DTypeFromOnnx(static_cast<int>(input.elem_type))) {
        value->element_type = *dtype;
      }
      for (const OnnxData& element : data.elements) {
        const std::string of = StrCat(name, ".", out->elements.size());
        out->elements.push_back({.name = of});
        if (element.kind == OnnxData::Kind::kSequence) {
          return Unimplemented("a sequence of sequences is not supported");
        }
        TG_ASSIGN_OR_RETURN(ValueRef part, InputOf(input, element, of, &out->elements.back()));
        value->elements.push_back(std::move(part));
      }
      return value;
    }
    case OnnxData::Kind::kStrings:
    case OnnxData::Kind::kNothing:
      break;
  }
  out->kind = OnnxValue::Kind::kFixed;
  out->fixed = std::make_shared<const OnnxData>(data);
  guards_.insert(std::string(input.name));
  if (data.kind == OnnxData::Kind::kStrings) return values_.FromStrings(data.strings);
  return std::make_shared<Value>(Value{.kind = Value::Kind::kNothing});
}

absl::StatusOr<ValueRef> Importer::Input(const ValueInfo& input, OnnxValue* out) {
  if (input.other) return Unimplemented("is a map or a sparse tensor, which is not supported");
  const auto given = options_.values.find(input.name);
  if (given != options_.values.end() && given->second != nullptr) {
    return InputOf(input, *given->second, input.name, out);
  }
  const auto is_sequence = [](Wrapper w) { return w == Wrapper::kSequence; };
  if (std::ranges::any_of(input.wrappers, is_sequence) || input.elem_type == kStringType) {
    return Unimplemented("holds ", input.elem_type == kStringType ? "strings" : "a sequence",
                         ": give its value at import");
  }
  TG_ASSIGN_OR_RETURN(const Shape shape, InputShape(input));
  return InputTensor(input, shape, input.name, out);
}

// Before IR version 4 initializers are listed among the inputs, as defaults.
absl::Status Importer::Inputs() {
  for (const ValueInfo& input : model_.inputs) {
    if (values_.Has(input.name)) continue;
    OnnxValue out{.name = std::string(input.name)};
    absl::StatusOr<ValueRef> value = Input(input, &out);
    if (value.ok()) {
      (*value)->name = input.name;
      TG_RETURN_IF_ERROR(values_.Define(input.name, *std::move(value)));
      out_.inputs.push_back(std::move(out));
      continue;
    }
    return At(StrCat("input '", input.name.substr(0, kShownBytes), "'"), value.status());
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

absl::Status Importer::Deeper() {
  if (depth_ == kMaxGraphDepth) {
    return ResourceExhausted("graphs and calls of functions are nested deeper than ",
                             kMaxGraphDepth);
  }
  ++depth_;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ValueRef>> Importer::ImportGraph(const GraphProto& graph,
                                                            const std::vector<ValueRef>& inputs) {
  if (inputs.size() > graph.inputs.size()) {
    return InvalidArgument("its graph has ", graph.inputs.size(), " inputs, expected ",
                           inputs.size());
  }
  TG_RETURN_IF_ERROR(Deeper());
  values_.Enter(/*sees_outer=*/true);
  std::vector<ValueRef> out;
  const auto run = [&]() -> absl::Status {
    // Whatever it has of nodes: a loop runs it many times.
    const size_t own = graph.initializers.size() + graph.sparse_initializers.size();
    TG_RETURN_IF_ERROR(budget_->SpendSteps(static_cast<int64_t>((1 + own) * (1 + inputs.size()))));
    TG_RETURN_IF_ERROR(budget_->CheckTime());
    TG_RETURN_IF_ERROR(Initializers(graph, inputs));
    for (size_t i = 0; i < inputs.size(); ++i) {
      TG_RETURN_IF_ERROR(values_.Define(graph.inputs[i].name, inputs[i]));
    }
    TG_RETURN_IF_ERROR(ImportNodes(graph.nodes, nullptr));
    for (const ValueInfo& output : graph.outputs) {
      TG_ASSIGN_OR_RETURN(ValueRef value, values_.Get(output.name));
      out.push_back(std::move(value));
    }
    return absl::OkStatus();
  };
  const absl::Status status = run();
  values_.Leave();
  --depth_;
  TG_RETURN_IF_ERROR(status);
  return out;
}

// In a function's body, attributes may stand for those of the call.
absl::StatusOr<const Node*> Importer::Resolve(const Node& node) {
  const auto refers = [](const Attribute& a) { return !a.reference.empty(); };
  if (std::ranges::none_of(node.attributes, refers)) return &node;
  if (frame_.function == nullptr) {
    return InvalidArgument("an attribute refers to that of a function, but this is none");
  }
  Node out = node;
  out.attributes.clear();
  TG_RETURN_IF_ERROR(copies_.Grow(BytesOf(node)));
  for (const Attribute& a : node.attributes) {
    if (a.reference.empty()) {
      out.attributes.push_back(a);
      continue;
    }
    const auto bound = frame_.attributes.find(a.reference);
    if (bound == frame_.attributes.end()) continue;
    TG_RETURN_IF_ERROR(copies_.Grow(BytesOf(*bound->second)));
    out.attributes.push_back(*bound->second);
    out.attributes.back().name = a.name;
  }
  resolved_.push_back(std::move(out));
  return &resolved_.back();
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
  if (!folded) TG_RETURN_IF_ERROR(row->function(context));
  TG_RETURN_IF_ERROR(builder_.status());
  TG_RETURN_IF_ERROR(SpendGrowth());
  return context.Finish();
}

absl::Status Importer::Call(const Function& function, const Node& node) {
  if (node.inputs.size() > function.inputs.size() ||
      node.outputs.size() > function.outputs.size()) {
    return InvalidArgument("has ", node.inputs.size(), " inputs and ", node.outputs.size(),
                           " results, the model's function has ", function.inputs.size(), " and ",
                           function.outputs.size());
  }
  Frame frame{.opsets = &function.opsets, .function = &function};
  for (const Attribute& a : function.defaults) frame.attributes[a.name] = &a;
  for (const Attribute& a : node.attributes) {
    const bool known =
        std::ranges::find(function.attributes, a.name) != function.attributes.end() ||
        frame.attributes.contains(a.name);
    if (!known) return InvalidArgument("the model's function has no attribute '", a.name, "'");
    frame.attributes[a.name] = &a;
  }
  std::vector<ValueRef> inputs;
  for (const std::string_view name : node.inputs) {
    inputs.emplace_back();
    if (name.empty()) continue;
    TG_ASSIGN_OR_RETURN(inputs.back(), values_.Get(name));
  }
  TG_RETURN_IF_ERROR(Deeper());
  values_.Enter(/*sees_outer=*/false);
  std::swap(frame_, frame);
  std::vector<ValueRef> results;
  const auto run = [&]() -> absl::Status {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == nullptr) continue;
      TG_RETURN_IF_ERROR(values_.Define(function.inputs[i], inputs[i]));
    }
    // Inputs that the call leaves out are left out of the body's nodes too.
    std::set<std::string_view> missing;
    for (size_t i = 0; i < function.inputs.size(); ++i) {
      if (i >= inputs.size() || inputs[i] == nullptr) missing.insert(function.inputs[i]);
    }
    const std::vector<Node>* nodes = &function.nodes;
    if (!missing.empty()) {
      for (const Node& n : function.nodes) TG_RETURN_IF_ERROR(copies_.Grow(BytesOf(n)));
      std::vector<Node>& copy = bodies_.emplace_back(function.nodes);
      for (Node& n : copy) {
        for (std::string_view& name : n.inputs) {
          if (missing.contains(name)) name = "";
        }
      }
      nodes = &copy;
    }
    TG_RETURN_IF_ERROR(ImportNodes(*nodes, nullptr));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      results.emplace_back();
      if (node.outputs[i].empty()) continue;
      TG_ASSIGN_OR_RETURN(results.back(), values_.Get(function.outputs[i]));
    }
    return absl::OkStatus();
  };
  const absl::Status status = run();
  std::swap(frame_, frame);
  values_.Leave();
  --depth_;
  TG_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == nullptr) continue;
    TG_RETURN_IF_ERROR(values_.Define(node.outputs[i], results[i]));
  }
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

absl::StatusOr<OnnxValue> Importer::Output(const ValueInfo& output, Value* value) {
  OnnxValue out{.name = std::string(output.name)};
  switch (value->kind) {
    case Value::Kind::kTensor: {
      TG_ASSIGN_OR_RETURN(const Tensor tensor, values_.ToTensor(value));
      if (output.elem_type != 0 && output.elem_type != Info(tensor.dtype()).onnx) {
        return InvalidArgument("is declared with element type ", output.elem_type,
                               " and computed as ", Name(tensor.dtype()));
      }
      out.slot = builder_.Output(tensor, values_.SlotName(output.name));
      stores_ = true;
      TG_RETURN_IF_ERROR(builder_.status());
      TG_RETURN_IF_ERROR(SpendGrowth());
      return out;
    }
    case Value::Kind::kSequence:
      out.kind = OnnxValue::Kind::kSequence;
      for (size_t i = 0; i < value->elements.size(); ++i) {
        TG_RETURN_IF_ERROR(budget_->SpendSteps());
        TG_RETURN_IF_ERROR(budget_->CheckTime());
        ValueInfo element = output;
        const std::string name = StrCat(output.name, ".", i);
        element.name = name;
        TG_ASSIGN_OR_RETURN(OnnxValue part, Output(element, value->elements[i].get()));
        out.elements.push_back(std::move(part));
      }
      return out;
    case Value::Kind::kStrings:
      out.kind = OnnxValue::Kind::kFixed;
      out.fixed = std::make_shared<const OnnxData>(
          OnnxData{.kind = OnnxData::Kind::kStrings, .strings = *value->strings});
      return out;
    case Value::Kind::kNothing:
      out.kind = OnnxValue::Kind::kFixed;
      out.fixed = std::make_shared<const OnnxData>();
      return out;
    case Value::Kind::kUnsupported:
      break;
  }
  return Internal("is a result that is not supported");
}

// A slot of the plan needs a name of its own, even if the output is an input or a weight.
absl::Status Importer::Outputs() {
  for (const ValueInfo& output : model_.outputs) {
    const std::string where = StrCat("output '", output.name.substr(0, kShownBytes), "'");
    const absl::StatusOr<ValueRef> value = values_.Get(output.name);
    if (!value.ok()) return At(where, value.status());
    absl::StatusOr<OnnxValue> out = Output(output, value->get());
    if (!out.ok()) return At(where, out.status());
    out_.outputs.push_back(*std::move(out));
  }
  if (!stores_) {  // what is known already needs no run, but a plan must store something
    builder_.Output(builder_.Const(DType::kBool, 1), values_.SlotName("nothing"));
  }
  return builder_.status();
}

}  // namespace
}  // namespace onnx

bool IsOptionsError(const absl::Status& status) {
  return status.GetPayload(onnx::kOptionsUrl).has_value();
}

absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options,
                                    Budget* budget) {
  const Budget::Doing doing(budget, "importing the model");
  absl::StatusOr<onnx::Model> model = onnx::ParseModel(bytes);
  if (!model.ok())
    return absl::Status(model.status().code(), StrCat("ONNX: ", ToStd(model.status().message())));
  TG_RETURN_IF_ERROR(onnx::ReadExternal(options, &*model));
  return onnx::Importer(*model, options, budget).Run();
}

absl::StatusOr<OnnxPlan> ImportOnnx(std::string_view bytes, const ImportOptions& options) {
  Budget budget;
  return ImportOnnx(bytes, options, &budget);
}

}  // namespace telegrad
