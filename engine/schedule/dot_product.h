// Sums of products of bytes by DOT4, which adds four of them to an i32 at once: four neighbours
// along a reduced range lie in one word. In bytes a and b less zero points za and zb,
//
//   sum of (a - za) (b - zb) = sum of a b - za sum of b - zb sum of a + K za zb
//
// where K is the number of terms, all modulo 2^32, as i32 adds: the result is exact. DOT4 wants one
// factor unsigned and one signed; a factor of the other kind has its upper bits flipped, which
// moves it and its zero point by 128.
//
//   words     w[.., k] = a[.., 4 k .. 4 k + 3], once for each factor; what a gate hides of a
//   factor,
//             as around an image, is its zero point, and lies in memory as the rest does
//   sums      of a, where zb is not known to be 0
//   multiply  the product of the words, and what follows it
//
// The words of a weight, and the sums of its bytes, are arguments that are computed once for many
// runs (engine/lowering/derive.h).
#pragma once

#include <functional>
#include <optional>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/kernel_parts.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// nullopt where the kernel, which is as the schedule makes it, has no sum of products of bytes. One
// that is not of this form is added up in f32, where that is exact (byte_products.h).
absl::StatusOr<std::optional<KernelParts>> UseDots(
    const FrozenGraph& kernel, const std::function<bool(int argument)>& is_weight,
    const ScheduleOptions& options, Budget* budget);

}  // namespace telegrad
