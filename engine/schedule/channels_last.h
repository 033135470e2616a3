// Windows over images of 16-bit floats, for targets that compute products in tiles: pixels that are
// neighbours in memory are not neighbours in the product where the window or its padding moves them
// by one, so its operands are copied by single elements. Channels are neighbours under every tap.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/types/target.h"

namespace telegrad {

// In a convolution with a window, and in its gradients, the axis that is summed and that both
// operands have alone, such as channels, becomes the last one in memory: a value that is computed
// is stored so, and a PARAM is copied by a kernel of its own. Only where this costs less than
// copies by single elements. From and to a legalized tensor graph (legalize.h).
absl::StatusOr<FrozenGraph> StoreChannelsLast(FrozenGraph graph, const Target& target,
                                              Budget* budget);

}  // namespace telegrad
