// Reads the plan from memory and lists its weights as parts of the file.
#include "server/serving/plan_model.h"

#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/io/plan_file.h"

namespace telegrad {

absl::StatusOr<PlanModel> ReadPlanModel(std::string_view file, Budget* budget) {
  TG_ASSIGN_OR_RETURN(const auto tensors, ReadTensorFile(ViewSource(file, "the model's file")));
  PlanModel out;
  TG_ASSIGN_OR_RETURN(out.plan, ReadPlan(*tensors, budget));
  TG_ASSIGN_OR_RETURN(out.shapes, OpenShapes(out.plan));
  out.contents.resize(out.plan.slots.size());
  for (size_t i = 0; i < out.plan.slots.size(); ++i) {
    const Slot& slot = out.plan.slots[i];
    if (slot.role != SlotRole::kState) continue;
    const TensorEntry* const entry = tensors->Find(slot.name);  // is there, see ReadPlan
    out.contents[i] =
        file.substr(static_cast<size_t>(entry->offset), static_cast<size_t>(entry->bytes));
  }
  return out;
}

}  // namespace telegrad
