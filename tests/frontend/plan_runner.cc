#include "tests/frontend/plan_runner.h"

#include "engine/base/status.h"
#include "engine/reference/tensor_eval.h"

namespace telegrad::testing {
namespace {

absl::Status Run(const Plan& plan, Bound* bound, auto run) {
  Slots slots;
  for (const Slot& slot : plan.slots) {
    auto found = bound->find(slot.name);
    if (found == bound->end() && slot.role == SlotRole::kState) {
      TG_ASSIGN_OR_RETURN(HostTensor first, InitialValue(slot));
      found = bound->emplace(slot.name, std::move(first)).first;
    }
    if (found == bound->end() && slot.role == SlotRole::kOutput) {
      TG_ASSIGN_OR_RETURN(const int64_t size, CheckedByteSize(slot.dtype, slot.shape));
      HostTensor empty{slot.dtype, slot.shape, std::string(static_cast<size_t>(size), '\0')};
      found = bound->emplace(slot.name, std::move(empty)).first;
    }
    if (found == bound->end()) return InvalidArgument("input '", slot.name, "' is not bound");
    const HostTensor& value = found->second;
    if (value.dtype != slot.dtype || value.shape != slot.shape) {
      return InvalidArgument("slot '", slot.name, "' is ", Name(slot.dtype), " ",
                             ToString(slot.shape), ", bound to ", Name(value.dtype), " ",
                             ToString(value.shape));
    }
    slots.emplace_back(value.bytes.begin(), value.bytes.end());
  }
  TG_RETURN_IF_ERROR(run(&slots));
  for (size_t i = 0; i < slots.size(); ++i) {
    bound->at(plan.slots[i].name).bytes.assign(slots[i].begin(), slots[i].end());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunOnReference(const Plan& plan, Bound* bound) {
  return Run(plan, bound, [&](Slots* slots) {
    Budget budget;
    return reference::Evaluate(plan.graph.root(), *slots, &budget);
  });
}

absl::Status RunOnCpu(CpuRunner* cpu, const Plan& plan, Bound* bound) {
  return Run(plan, bound, [&](Slots* slots) { return cpu->Run(plan.graph.root(), {}, slots); });
}

}  // namespace telegrad::testing
