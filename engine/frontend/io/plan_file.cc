// Types and shapes of the slots are those of the graph's PARAMs, so that nothing is said twice.
#include "engine/frontend/io/plan_file.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/types/limits.h"
#include "engine/wire/graph_bytes.h"

namespace telegrad {
namespace {

constexpr std::string_view kPlanKey = "telegrad.plan", kGraphKey = "telegrad.graph",
                           kSlotsKey = "telegrad.slots", kSizesKey = "telegrad.sizes",
                           kPlanVersion = "1";

// Null if the file has no such text.
const std::string* MetadataText(const TensorFile& file, std::string_view key) {
  const auto it = file.metadata().find(key);
  return it == file.metadata().end() ? nullptr : std::get_if<std::string>(&it->second);
}

bool ReadRole(std::string_view text, SlotRole* out) {
  for (const SlotRole role : {SlotRole::kInput, SlotRole::kState, SlotRole::kOutput}) {
    if (text != Name(role)) continue;
    *out = role;
    return true;
  }
  return false;
}

bool ReadSlot(JsonReader* json, Slot* out) {
  bool name = false, role = false;
  if (!json->Eat('{')) return false;
  do {
    std::string key, value;
    if (!json->String(&key) || !json->Eat(':') || !json->String(&value)) return false;
    if (key == "name" && !name) {
      out->name = std::move(value);
      name = true;
    } else if (key == "role" && !role) {
      role = ReadRole(value, &out->role);
      if (!role) return false;
    } else {
      return false;
    }
  } while (json->Eat(','));
  return name && role && json->Eat('}');
}

bool ReadSlots(std::string_view text, std::vector<Slot>* out) {
  JsonReader json(text);
  if (!json.Eat('[')) return false;
  if (json.Eat(']')) return json.AtEnd();
  do {
    if (out->size() == static_cast<size_t>(kMaxParams) || !ReadSlot(&json, &out->emplace_back())) {
      return false;
    }
  } while (json.Eat(','));
  return json.Eat(']') && json.AtEnd();
}

bool ReadNames(std::string_view text, std::vector<std::string>* out) {
  JsonReader json(text);
  if (!json.Eat('[')) return false;
  if (json.Eat(']')) return json.AtEnd();
  do {
    if (out->size() == static_cast<size_t>(kMaxParams) || !json.String(&out->emplace_back())) {
      return false;
    }
  } while (json.Eat(','));
  return json.Eat(']') && json.AtEnd();
}

// The graph's VARs, each with the name that the file has for its number.
absl::Status DescribeVariables(const TensorFile& file, Plan* plan) {
  std::vector<std::string> names;
  const std::string* const text = MetadataText(file, kSizesKey);
  if (text != nullptr && !ReadNames(*text, &names)) {
    return InvalidArgument(file.name(), ": ", kSizesKey, " is not an array of names, at most ",
                           kMaxParams);
  }
  std::set<int64_t> known;
  for (const uint32_t id : PostOrder(plan->graph.root())) {
    const UOp u = plan->graph.graph->at(id);
    if (!u.is(Op::kVar) || u.num_src() > 0) continue;
    const int64_t number = u.var_id();
    if (number < 0 || number >= static_cast<int64_t>(names.size())) {
      return InvalidArgument(file.name(), ": ", kSizesKey, " has no name for the variable ",
                             number);
    }
    if (!known.insert(number).second) {
      return InvalidArgument(file.name(), ": the variable ", names[static_cast<size_t>(number)],
                             " has two ranges");
    }
    plan->variables.push_back({.name = names[static_cast<size_t>(number)],
                               .id = number,
                               .min = u.var_min(),
                               .max = u.var_max(),
                               .multiple = u.var_multiple()});
  }
  return absl::OkStatus();
}

// Types and shapes of the slots, from the graph's PARAMs.
absl::Status DescribeSlots(const TensorFile& file, const FrozenGraph& graph,
                           std::vector<Slot>* slots) {
  for (const uint32_t id : PostOrder(graph.root())) {
    const UOp u = graph.graph->at(id);
    if (!u.is(Op::kParam)) continue;
    const auto number = static_cast<size_t>(u.slot());
    if (number >= slots->size()) {
      return InvalidArgument(file.name(), ": the graph has a slot ", number, ", ", kSlotsKey,
                             " describes ", slots->size());
    }
    (*slots)[number].dtype = u.dtype();
    (*slots)[number].shape.assign(u.shape().begin(), u.shape().end());
  }
  return absl::OkStatus();
}

absl::Status CheckSlots(const TensorFile& file, const std::vector<Slot>& slots) {
  std::set<std::string_view> names;
  for (const Slot& slot : slots) {
    if (!names.insert(slot.name).second) {
      return InvalidArgument(file.name(), ": two slots are named ", slot.name);
    }
    if (slot.dtype == DType::kVoid) {
      return InvalidArgument(file.name(), ": the graph has no slot ", slot.name);
    }
    if (slot.role != SlotRole::kState) continue;
    const TensorEntry* const content = file.Find(slot.name);
    if (content == nullptr) {
      return InvalidArgument(file.name(), ": there is no tensor ", slot.name,
                             ", the content of a state slot");
    }
    if (content->quantized || content->dtype != slot.dtype || content->shape != slot.shape) {
      return InvalidArgument(file.name(), ": the tensor ", slot.name, " is ", Name(content->dtype),
                             " ", ToString(content->shape), ", its slot ", Name(slot.dtype), " ",
                             ToString(slot.shape));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool HoldsPlan(const TensorFile& file) { return MetadataText(file, kPlanKey) != nullptr; }

absl::StatusOr<Plan> ReadPlan(const TensorFile& file, Budget* budget) {
  const std::string* const version = MetadataText(file, kPlanKey);
  const std::string* const graph = MetadataText(file, kGraphKey);
  const std::string* const slots = MetadataText(file, kSlotsKey);
  if (version == nullptr || graph == nullptr || slots == nullptr) {
    return InvalidArgument(file.name(), ": the metadata has no ", kPlanKey, ", ", kGraphKey, " or ",
                           kSlotsKey);
  }
  if (*version != kPlanVersion) {
    return Unimplemented(file.name(), ": a plan of version ", *version, "; this program reads ",
                         kPlanVersion);
  }
  Plan plan;
  std::string bytes;
  if (!absl::Base64Unescape(*graph, &bytes)) {
    return InvalidArgument(file.name(), ": ", kGraphKey, " is not base64");
  }
  if (!ReadSlots(*slots, &plan.slots)) {
    return InvalidArgument(file.name(), ": ", kSlotsKey,
                           " is not an array of slots with a name and a role, at most ",
                           kMaxParams);
  }
  TG_ASSIGN_OR_RETURN(plan.graph, GraphFromBytes(bytes, budget));
  TG_RETURN_IF_ERROR(DescribeSlots(file, plan.graph, &plan.slots));
  TG_RETURN_IF_ERROR(DescribeVariables(file, &plan));
  TG_RETURN_IF_ERROR(CheckSlots(file, plan.slots));
  return plan;
}

}  // namespace telegrad
