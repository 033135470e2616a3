// Convolutions with a window of 3 x 3 as products of transformed tiles, F(4 x 4, 3 x 3): 36
// multiplications for 16 results instead of 144. Source: A. Lavin and S. Gray, "Fast Algorithms for
// Convolutional Neural Networks", 2016, section 4.1 and the matrices of its F(4 x 4, 3 x 3).
//
//   transform   V[p, t, c] = (B' x B)[p]        6 x 6 of the input for each tile t and channel c
//   multiply    M[p, t, o] = sum_c V[p, t, c] (G w G')[p, o, c]
//   combine     y[o, t]    = A' M A             4 x 4 results, and what follows the sum
//
// The sums are other ones than those of the convolution: in f32 results differ by about 1e-5 of the
// sum of the magnitudes. An infinity or NaN spreads over the tiles that contain it.
#pragma once

#include <functional>
#include <optional>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/kernel_parts.h"
#include "engine/schedule/schedule.h"

namespace telegrad {

// nullopt where the kernel, which is as the schedule makes it, is no such convolution, where the
// argument that would be transformed once is no weight, or where it is not predicted to be faster.
absl::StatusOr<std::optional<KernelParts>> UseWinograd(
    const FrozenGraph& kernel, const std::function<bool(int argument)>& is_weight,
    const ScheduleOptions& options, Budget* budget);

}  // namespace telegrad
