// Gates: iterations by which sizes are rounded up do nothing.
#pragma once

#include <span>

#include "engine/base/status.h"
#include "engine/lowering/moves/split.h"

namespace telegrad {

// Beyond the size of a range that is rounded up, loads give 0, stores are skipped, and a reduction
// gets its identity. A store that depends on no range with a part of an axis of threads is done by
// its first one. The ranges of `sink` are not split yet if padding.gates_loads, else they are.
// Nodes in `apart` get no gates.
absl::StatusOr<UOp> GateIterations(Rewriter& b, UOp sink, std::span<const SplitRange> splits,
                                   const Parallel& parallel, const Padding& padding,
                                   std::span<const UOp> apart);

}  // namespace telegrad
