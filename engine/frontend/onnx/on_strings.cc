#include "engine/frontend/onnx/on_strings.h"

#include <algorithm>
#include <map>

namespace telegrad::onnx {
namespace {

// How many of the results are strings.
struct StringRow {
  std::string_view name;
  size_t results;
};
constexpr size_t kAll = SIZE_MAX;
constexpr StringRow kStringRows[] = {
    {"Compress", kAll},
    {"Concat", kAll},
    {"DepthToSpace", kAll},
    {"Equal", 0},
    {"Expand", kAll},
    {"Flatten", kAll},
    {"Gather", kAll},
    {"GatherElements", kAll},
    {"GatherND", kAll},
    {"Reshape", kAll},
    {"ReverseSequence", kAll},
    {"Scatter", kAll},
    {"ScatterElements", kAll},
    {"ScatterND", kAll},
    {"Shape", 0},
    {"Size", 0},
    {"Slice", kAll},
    {"SpaceToDepth", kAll},
    {"Split", kAll},
    {"Squeeze", kAll},
    {"Tile", kAll},
    {"Transpose", kAll},
    {"Unique", 1},
    {"Unsqueeze", kAll},
    {"Where", kAll},
    {"ai.onnx.ml.ArrayFeatureExtractor", kAll},
};

// All strings of a node, each with its rank among them.
class Ranks {
 public:
  void Add(const StringTensor& strings) {
    for (const std::string& s : strings.values) ranks_.emplace(s, 0);
  }
  void Sort() {
    for (auto& [s, rank] : ranks_) {
      rank = static_cast<int64_t>(sorted_.size());
      sorted_.push_back(s);
    }
  }
  HostTensor Of(const StringTensor& strings) const {
    std::vector<int64_t> out;
    for (const std::string& s : strings.values) out.push_back(ranks_.at(s));
    return HostTensor::Of<int64_t>(strings.shape, out);
  }
  // What no string stands for (an index out of range gives 0) is the first one.
  absl::StatusOr<StringTensor> Back(const HostTensor& ranks, Budget* budget) const {
    StringTensor out{ranks.shape, {}};
    Budget::Held held(budget);
    for (const int64_t rank : ranks.Values<int64_t>()) {
      const bool known = rank >= 0 && rank < static_cast<int64_t>(sorted_.size());
      const std::string_view s = known ? sorted_[rank] : "";
      TG_RETURN_IF_ERROR(held.Grow(static_cast<int64_t>(sizeof(std::string) + s.size())));
      out.values.emplace_back(s);
    }
    return out;
  }

 private:
  std::map<std::string_view, int64_t> ranks_;
  std::vector<std::string_view> sorted_;
};

}  // namespace

absl::StatusOr<bool> ImportOnStrings(const Operator& row, const Node& node, int64_t opset,
                                     Values* values, GraphImporter* graphs) {
  const auto* rule = std::ranges::find(kStringRows, row.name, &StringRow::name);
  if (rule == std::end(kStringRows)) return false;
  std::map<std::string_view, ValueRef> inputs;
  Ranks ranks;
  for (const std::string_view name : node.inputs) {
    if (name.empty()) continue;
    TG_ASSIGN_OR_RETURN(const ValueRef value, values->Get(name));
    if (value->kind != Value::Kind::kStrings) continue;
    inputs.emplace(name, value);
    ranks.Add(*value->strings);
  }
  if (inputs.empty()) return false;
  ranks.Sort();
  values->Enter(/*sees_outer=*/true);
  std::vector<ValueRef> results;
  const auto run = [&]() -> absl::Status {
    for (const auto& [name, value] : inputs) {
      TG_ASSIGN_OR_RETURN(ValueRef numbers, values->FromKnown(ranks.Of(*value->strings)));
      TG_RETURN_IF_ERROR(values->Define(name, std::move(numbers)));
    }
    NodeContext context(&node, opset, values, graphs);
    TG_RETURN_IF_ERROR(row.function(context));
    TG_RETURN_IF_ERROR(context.builder().status());
    TG_RETURN_IF_ERROR(context.Finish());
    for (const std::string_view name : node.outputs) {
      results.emplace_back();
      if (name.empty()) continue;
      TG_ASSIGN_OR_RETURN(results.back(), values->Get(name));
    }
    return absl::OkStatus();
  };
  const absl::Status status = run();
  values->Leave();
  TG_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] == nullptr) continue;
    if (i < rule->results) {
      TG_ASSIGN_OR_RETURN(const HostTensor* numbers,
                          values->ToHost(results[i].get(), Effort::kInputs));
      if (numbers == nullptr) {
        return Unimplemented(
            "its strings depend on inputs that are only known when the model runs");
      }
      TG_ASSIGN_OR_RETURN(StringTensor strings, ranks.Back(*numbers, values->budget()));
      TG_ASSIGN_OR_RETURN(results[i], values->FromStrings(std::move(strings)));
    }
    TG_RETURN_IF_ERROR(values->Define(node.outputs[i], results[i]));
  }
  return true;
}

}  // namespace telegrad::onnx
