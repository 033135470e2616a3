#include "engine/frontend/onnx/refusals.h"

#include <set>

#include "engine/base/status.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr size_t kShownNodes = 8;    // of a group
constexpr size_t kShownGroups = 64;  // that differ in operator or reason

std::string OperatorName(const Node& node) {
  const std::string_view op = node.op_type.substr(0, kShownBytes);
  if (node.domain.empty() || node.domain == "ai.onnx") return std::string(op);
  return StrCat(node.domain.substr(0, kShownBytes), ".", op);
}

struct Reason {
  std::string_view domain, name, why;
};
constexpr Reason kReasons[] = {
    {"ai.onnx.ml", "CastMap", "maps are no values here: give the tensor to the rest of the model"},
    {"ai.onnx.ml", "DictVectorizer",
     "maps are no values here: give the tensor to the rest of the model"},
};

std::string_view WhyMissing(const Node& node) {
  const std::string_view domain = node.domain == "ai.onnx" ? "" : node.domain;
  for (const Reason& row : kReasons) {
    if (row.domain == domain && row.name == node.op_type) return row.why;
  }
  return "there is no such operator here";
}

}  // namespace

std::string Describe(const Node& node) {
  const std::string_view op = node.op_type.substr(0, kShownBytes);
  if (!node.name.empty()) return StrCat("node '", node.name.substr(0, kShownBytes), "' (", op, ")");
  const std::string_view result = node.outputs.empty() ? "" : node.outputs[0];
  return StrCat("the node of '", result.substr(0, kShownBytes), "' (", op, ")");
}

int64_t OpsetOf(const OpsetVersions& opsets, std::string_view domain) {
  const auto it = opsets.find(domain == "ai.onnx" ? "" : domain);
  return it == opsets.end() ? 1 : it->second;
}

void Refusals::Add(const Node& node, int64_t opset, std::string_view why) {
  Group& group = groups_[{StrCat(OperatorName(node), " (opset ", opset, ")"), std::string(why)}];
  ++group.count;
  if (group.names.size() == kShownNodes) return;
  const bool named = !node.name.empty() || node.outputs.empty();
  const std::string_view name = named ? node.name : node.outputs[0];
  group.names.push_back(StrCat(named ? "'" : "of '", name.substr(0, kShownBytes), "'"));
}

absl::Status Refusals::ToStatus() const {
  if (groups_.empty()) return absl::OkStatus();
  int64_t nodes = 0;
  for (const auto& [key, group] : groups_) nodes += group.count;
  std::string out =
      StrCat("ONNX: ", nodes, nodes == 1 ? " node is" : " nodes are", " not supported");
  size_t shown = 0;
  for (const auto& [key, group] : groups_) {
    if (shown++ == kShownGroups) {
      StrAppend(&out, "\n  and ", groups_.size() - kShownGroups, " more kinds");
      break;
    }
    StrAppend(&out, "\n  ", key.first, ": ", group.count,
              group.count == 1 ? " node, " : " nodes, ");
    for (size_t i = 0; i < group.names.size(); ++i) {
      StrAppend(&out, i == 0 ? "" : ", ", group.names[i]);
    }
    if (group.count > static_cast<int64_t>(group.names.size())) StrAppend(&out, ", ...");
    StrAppend(&out, ": ", key.second);
  }
  return absl::UnimplementedError(out);
}

// Graphs are as deep as the parser allows; each function is looked into once.
Refusals Unsupported(const Model& model, const std::map<FunctionKey, const Function*>& functions) {
  struct Part {
    const std::vector<Node>* nodes;
    const OpsetVersions* opsets;
  };
  Refusals out;
  std::set<const Function*> seen;
  std::vector<Part> parts = {{&model.nodes, &model.opsets}};
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    for (const Node& node : *part.nodes) {
      for (const Attribute& a : node.attributes) {
        if (a.g != nullptr) parts.push_back({&a.g->nodes, part.opsets});
      }
      const auto function = functions.find(FunctionKey(node.domain, node.op_type));
      if (function != functions.end()) {
        const Function* f = function->second;
        if (seen.insert(f).second) parts.push_back({&f->nodes, &f->opsets});
      } else if (FindOperator(node.domain, node.op_type) == nullptr) {
        out.Add(node, OpsetOf(*part.opsets, node.domain), WhyMissing(node));
      }
    }
  }
  return out;
}

}  // namespace telegrad::onnx
