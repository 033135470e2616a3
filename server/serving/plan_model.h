// Saved plans as models: a graph and its weights in one safetensors file, as
// `telegrad.torch.export` writes them (engine/frontend/io/plan_file.h).
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/frontend/io/plan_sizes.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

struct PlanModel {
  Plan plan;
  std::vector<Shape> shapes;               // by slot, with kOpenDim where they depend on the inputs
  std::vector<std::string_view> contents;  // by slot, of its state: where `file` has it
};

// `file` outlives the contents. The errors of ReadPlan and of OpenShapes.
absl::StatusOr<PlanModel> ReadPlanModel(std::string_view file, Budget* budget);

}  // namespace telegrad
