// Whether a graph computes rows again, and how it is planned then.
#pragma once

#include <optional>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/recompute.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// Of a target, for a graph that computes no rows again.
FusionOptions FusionOptionsFor(const ScheduleOptions& target);

struct ChosenRows {
  RecomputedRows rows;
  std::optional<FusionPlan> plan;  // of the graph with these, where one was made to choose
};

// The graph with what is computed again a few rows at a time, where that pays and kernels can keep
// the rows.
absl::StatusOr<ChosenRows> ChooseRows(const FrozenGraph& legal, const ScheduleOptions& target,
                                      Budget* budget);

// The options with what is said of rows.
FusionOptions WithRows(FusionOptions options, const RecomputedRows& rows);

}  // namespace telegrad
