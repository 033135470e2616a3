// Sums over the taps of windows. The gradient of a pool or of a convolution is, in a client's
// terms, the sum of as many views as a window has taps, each padded, spread and cut so that it lies
// over the image: REDUCE(views(x)). At most places many of them show padding.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// From and to a legalized tensor graph (legalize.h).
//
//   pool         Where each place has one tap at most, because the windows do not overlap, the sum
//                becomes a view.
//   convolution  Where x is itself a sum of products of an image and a weight, for this alone, both
//                become one sum over the padded image, and the products of each tap are not kept.
//                Its floats are added in another order, and an infinite weight or NaN is multiplied
//                with the padding, too. Not where sums are `fixed`.
//   taps         Taps that show padding at every place are left out.
absl::StatusOr<FrozenGraph> SimplifyWindowSums(FrozenGraph graph, bool fixed, Budget* budget);

}  // namespace telegrad
