// The kernels of a fusion plan, in the order in which they run.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// What a cycle asks for; each step rebuilds the kernels.
enum class Caution { kNone, kSplitStores, kSnapshotVersions };

// A schedule, or what stands in its way.
struct Attempt {
  std::optional<Schedule> schedule;           // none: the kernels form a cycle,
  std::vector<uint32_t> to_be_written_alone;  // which writing these apart from others may resolve
};

// `sink` is a legalized graph, `fusion` its plan.
absl::StatusOr<Attempt> OrderKernels(UOp sink, FusionPlan fusion, Caution caution,
                                     const ScheduleOptions& target, Budget* budget);

}  // namespace telegrad
