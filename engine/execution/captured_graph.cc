#include "engine/execution/captured_graph.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "engine/types/limits.h"

namespace telegrad {

namespace {

absl::Status AddSlot(size_t slot, const SlotUse& use, std::vector<SlotUse>* slots) {
  if (slot >= static_cast<size_t>(kMaxParams)) {
    return InvalidArgument("capture: slot ", slot, ", over the limit of ", kMaxParams);
  }
  if (slots->size() <= slot) slots->resize(slot + 1);
  SlotUse& known = (*slots)[slot];
  if (known.used && known.dtype != use.dtype) {
    return InvalidArgument("capture: slot ", slot, " is ", Name(use.dtype), " in one run and ",
                           Name(known.dtype), " in another");
  }
  if (known.used && known.bytes >= use.bytes) return absl::OkStatus();
  known = use;
  known.read = known.written = false;  // the kernels will say
  return absl::OkStatus();
}

}  // namespace

absl::Status CaptureGraph::Add(const std::shared_ptr<const Executable>& executable,
                               std::span<const int32_t> slots) {
  const auto planned = std::dynamic_pointer_cast<const PlannedExecutable>(executable);
  if (planned == nullptr)
    return Unimplemented(
        "capture: an executable over several devices or with values of variables; submit it by "
        "itself");
  const LaunchPlan& plan = planned->plan();
  if (runs_ != nullptr && runs_ != planned->runs()) {
    return InvalidArgument("capture: a run on ", planned->runs()->device.name(),
                           ", of another device or cache than those before");
  }
  if (slots.size() < plan.slots.size()) {
    return InvalidArgument("capture: ", slots.size(), " slots for the ", plan.slots.size(),
                           " of a run");
  }
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (!plan.slots[i].used) continue;
    if (slots[i] < 0)
      return InvalidArgument("capture: slot ", i,
                             " of a run is not mapped to a slot of the capture");
    for (size_t k = 0; k < i; ++k) {
      if (!plan.slots[k].used || slots[k] != slots[i]) continue;
      if (!plan.slots[i].written && !plan.slots[k].written) continue;
      return InvalidArgument("capture: slots ", k, " and ", i, " of a run are both slot ", slots[i],
                             ", and it writes one of them");
    }
  }
  std::vector<SlotUse> merged = plan_.slots;
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    if (!plan.slots[i].used) continue;
    TG_RETURN_IF_ERROR(AddSlot(static_cast<size_t>(slots[i]), plan.slots[i], &merged));
  }
  plan_.slots = std::move(merged);
  runs_ = planned->runs();
  const auto packed = static_cast<int32_t>(plan_.packed.size());
  for (PackedSlot p : plan.packed) {
    p.slot = slots[static_cast<size_t>(p.slot)];
    plan_.packed.push_back(std::move(p));
  }
  for (KernelInfo kernel : plan.kernels) {
    for (KernelArgument& a : kernel.arguments) {
      if (!a.temporary) a.slot = slots[static_cast<size_t>(a.slot)];
      if (a.packed >= 0) a.packed += packed;
    }
    plan_.kernels.push_back(std::move(kernel));
  }
  plan_.programs.insert(plan_.programs.end(), plan.programs.begin(), plan.programs.end());
  plan_.temporary_bytes = std::max(plan_.temporary_bytes, plan.temporary_bytes);
  plan_.zeroed_temporaries |= plan.zeroed_temporaries;
  plan_.code_bytes += plan.code_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Executable>> CaptureGraph::Finish() && {
  if (runs_ == nullptr) return InvalidArgument("capture: no run was added");
  TG_ASSIGN_OR_RETURN(std::shared_ptr<const Executable> out,
                      PlannedExecutable::Create(std::move(plan_), std::move(runs_)));
  return out;
}

}  // namespace telegrad
