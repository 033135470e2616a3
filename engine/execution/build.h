// From a tensor graph to an executable: schedule, compile, encode.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/execution/kernel_cache.h"
#include "engine/execution/planned_executable.h"
#include "engine/ir/graph.h"
#include "engine/schedule/schedule_cache.h"
#include "engine/types/var_value.h"

namespace telegrad {

struct Built {
  std::shared_ptr<const PlannedExecutable> executable;
  uint64_t schedule_ns = 0;
  LoweringTime lowered = {};
};

ScheduleOptions ScheduleOptionsFor(const Device& device);

// `graph` is a verified tensor graph with the content hash `hash`, `variables` as in Legalize.
// RESOURCE_EXHAUSTED before anything is compiled where the temporaries alone are more than the
// device has. `values`: of a general form, its last slot has the values of these variables.
absl::StatusOr<Built> Build(const Digest& hash, const FrozenGraph& graph,
                            std::span<const VarValue> variables, std::shared_ptr<DeviceRuns> runs,
                            ScheduleCache& schedules, KernelCache& cache, Budget* budget,
                            std::span<const VarRange> values = {});

}  // namespace telegrad
