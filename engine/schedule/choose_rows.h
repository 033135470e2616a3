// Whether a graph computes rows again, and how it is planned then.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/recompute.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// Of a target, for a graph that computes no rows again.
FusionOptions FusionOptionsFor(const ScheduleOptions& target);

// The graph with what is computed again a few rows at a time, where that pays and kernels can keep
// the rows.
absl::StatusOr<RecomputedRows> ChooseRows(const FrozenGraph& legal, const ScheduleOptions& target,
                                          Budget* budget);

}  // namespace telegrad
