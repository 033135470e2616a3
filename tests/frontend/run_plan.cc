// Fills the slots of a plan from inputs, state and initial values, runs it on a CPU device or in
// the reference interpreter, and returns outputs and new state by name.
#include "tests/frontend/run_plan.h"

#include "engine/base/status.h"
#include "engine/reference/tensor_eval.h"

namespace telegrad::testing {
namespace {

const HostTensor* Find(const Named* values, const std::string& name) {
  if (values == nullptr) return nullptr;
  const auto it = values->find(name);
  return it == values->end() ? nullptr : &it->second;
}

}  // namespace

absl::StatusOr<Named> RunPlan(const Plan& plan, const Named& inputs, CpuRunner* device,
                              Named* state, const std::map<std::string, int64_t>& variables) {
  Slots slots;
  for (const Slot& slot : plan.slots) {
    const HostTensor* value = Find(&inputs, slot.name);
    if (value == nullptr) value = Find(state, slot.name);
    HostTensor initial;
    if (value == nullptr && slot.role == SlotRole::kOutput) {
      TG_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteSize(slot.dtype, slot.shape));
      initial = {slot.dtype, slot.shape, std::string(static_cast<size_t>(bytes), '\0')};
      value = &initial;
    } else if (value == nullptr) {
      TG_ASSIGN_OR_RETURN(initial, InitialValue(slot));
      value = &initial;
    }
    if (value->dtype != slot.dtype || value->shape != slot.shape) {
      return InvalidArgument("slot '", slot.name, "' is bound to another type or shape");
    }
    slots.emplace_back(value->bytes.begin(), value->bytes.end());
  }
  std::vector<VarValue> values;
  reference::Variables by_id;
  for (const PlanVariable& v : plan.variables) {
    const auto it = variables.find(v.name);
    if (it == variables.end()) return InvalidArgument("variable '", v.name, "' has no value");
    values.push_back({v.id, it->second});
    by_id[v.id] = it->second;
  }
  if (device != nullptr) {
    TG_RETURN_IF_ERROR(device->Run(plan.graph.root(), values, &slots));
  } else {
    Budget budget;
    TG_RETURN_IF_ERROR(reference::Evaluate(plan.graph.root(), slots, &budget, by_id));
  }
  Named out;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    HostTensor value{slot.dtype, slot.shape, std::string(slots[i].begin(), slots[i].end())};
    if (slot.role == SlotRole::kOutput)
      out[slot.name] = std::move(value);
    else if (slot.role == SlotRole::kState && state != nullptr)
      (*state)[slot.name] = std::move(value);
  }
  return out;
}

}  // namespace telegrad::testing
