// What the scheduler makes of a tensor graph before it plans kernels. Each step takes a legalized
// graph (legalize.h) and gives another one that computes the same. Steps are rows, in the order in
// which ScheduleGraph runs them; telegrad-opt runs each alone, and schedules without some of them.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/ir/graph.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

struct GraphStep {
  std::string_view name;
  std::string_view what;
  // Whether it is for such targets; on others it is left out.
  bool (*applies)(const ScheduleOptions&);
  absl::StatusOr<FrozenGraph> (*run)(FrozenGraph, const ScheduleOptions&, Budget*);
};

inline constexpr size_t kMostGraphSteps = 32;  // of which telegrad-opt makes passes
std::span<const GraphStep> GraphSteps();

// Runs those of `steps` that apply.
absl::StatusOr<FrozenGraph> RunGraphSteps(FrozenGraph legal, std::span<const GraphStep> steps,
                                          const ScheduleOptions& options, Budget* budget);

}  // namespace telegrad
