// What of a model is not supported, collected so that one message tells it all.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/frontend/onnx/model.h"

namespace telegrad::onnx {

// How much of a name from the model an error repeats.
inline constexpr size_t kShownBytes = 256;

// "node 'conv1' (Conv)", or by its result if it has no name.
std::string Describe(const Node& node);

// The version of a node's domain; 1 where the model does not say.
int64_t OpsetOf(const OpsetVersions& opsets, std::string_view domain);

using FunctionKey = std::pair<std::string_view, std::string_view>;  // domain, name

// Nodes by operator, opset and reason.
class Refusals {
 public:
  void Add(const Node& node, int64_t opset, std::string_view why);
  bool empty() const { return groups_.empty(); }
  // OK if empty, else UNIMPLEMENTED.
  absl::Status ToStatus() const;

 private:
  struct Group {
    int64_t count = 0;
    std::vector<std::string> names;  // the first few
  };
  // By "Operator (opset 13)" and why.
  std::map<std::pair<std::string, std::string>, Group> groups_;
};

// The operators of the model, its nodes' graphs and the functions that it calls that have no row in
// the table.
Refusals Unsupported(const Model& model, const std::map<FunctionKey, const Function*>& functions);

}  // namespace telegrad::onnx
