// How much a kernel does, whatever the run gives.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Iterations of all that a kernel stores and reduces: where the numbers that the run gives are the
// least that their bounds allow, so that loops which they end (runtime_ends.h) are as short as they
// can be, and where they are the greatest.
struct KernelWork {
  double least = 0, most = 0;
};

// Of a scheduled kernel.
absl::StatusOr<KernelWork> WorkOf(const FrozenGraph& kernel, Budget* budget);

}  // namespace telegrad
