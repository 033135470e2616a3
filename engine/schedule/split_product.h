// Products whose tiles leave processors without work, as those of a model that decodes, or the
// gradient of a weight: long sums into few results. Their sum is divided among workgroups, and one
// kernel becomes two:
//
//   parts   p[part, i...] = sum over the part of k of a b, a product for each part, in f32
//   sum     y[i...] = f(sum over part of p[part, i...])
//
// What the kernel computes from the sum is computed by the second one. The moves and matrix
// instructions of the first are those of any batch of products.
#pragma once

#include <optional>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/kernel_parts.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// nullopt where the kernel, which is as the schedule makes it, is no product in tiles for the
// options' target, or costs less as it is. Floats are added in another order.
absl::StatusOr<std::optional<KernelParts>> SplitProduct(const FrozenGraph& kernel,
                                                        const ScheduleOptions& options,
                                                        Budget* budget);

}  // namespace telegrad
