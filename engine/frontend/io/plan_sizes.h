// Plans for inputs of many shapes, and what such a plan is for certain ones.
//
// A slot whose size depends on the inputs is in the graph
//
//   RESHAPE(SHRINK(PARAM [most], offset 0, elements), dims)
//
// and nothing else uses its PARAM or its SHRINK. `elements` and the symbolic ones of `dims` are
// computed from VARs, and each VAR is itself a dim of an input. With numbers in place of the VARs
// the slot is a PARAM of `elements`, and the plan is one of fixed sizes like any other.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

inline constexpr int64_t kOpenDim = -1;

// By slot: its shape, in which kOpenDim stands for what depends on the inputs. INVALID_ARGUMENT for
// a graph of another form; UNIMPLEMENTED for a VAR that is no dim of an input.
absl::StatusOr<std::vector<Shape>> OpenShapes(const Plan& plan);

// By slot and dim: the index in plan.variables of the VAR that a dim is, or -1.
absl::StatusOr<std::vector<std::vector<int>>> DimVariables(const Plan& plan);

// The plan for inputs of these shapes, by slot; those of other slots are not looked at.
// INVALID_ARGUMENT where they do not fit the plan or each other.
absl::StatusOr<Plan> PlanForShapes(const Plan& plan, std::span<const Shape> shapes, Budget* budget);

}  // namespace telegrad
