// Attention of few queries, as those of a model that decodes, whose rows of scores leave processors
// without work: one workgroup has a row (engine/lowering/workgroup_online_row.h). The keys of each
// row are divided among several, and one kernel becomes two. Of part i of n, which has the keys
// i, i + n, i + 2 n ..., so that all parts have as many up to any length:
//
//   parts   m[i] = max of its e[k],   l[i] = sum of exp2((e[k] - m[i]) c)
//           y[i] = sum of exp2((e[k] - m[i]) c) v[k]
//   join    m = max of m[i],  l = sum of l[i] exp2((m[i] - m) c),  y = sum of y[i] exp2((m[i] - m)
//   c)
//
// What the kernel computes from these is computed by the second one.
#pragma once

#include <optional>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/kernel_parts.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// nullopt where the kernel, which is as the schedule makes it, is no such attention, or has enough
// workgroups or few keys. Floats are added in another order.
absl::StatusOr<std::optional<KernelParts>> SplitRows(const FrozenGraph& kernel,
                                                     const ScheduleOptions& options,
                                                     Budget* budget);

}  // namespace telegrad
