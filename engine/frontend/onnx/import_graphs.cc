// Graphs in attributes of nodes, and the model's own functions: their nodes are imported where they
// stand, with names of their own scope.
#include <algorithm>

#include "engine/frontend/onnx/importer.h"

namespace telegrad::onnx {
namespace {

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

}  // namespace

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

}  // namespace telegrad::onnx
