// How much a kernel does, whatever the run gives.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/types/target.h"

namespace telegrad {

// Iterations of all that a kernel stores and reduces: where the values of variables are the least
// that their bounds allow, so that loops which they end (runtime_ends.h) are as short as they can
// be, and where they are the greatest. Numbers in other arguments may be anything, so loops that
// these end count as their bounds in both.
struct KernelWork {
  double least = 0, most = 0;
};

// Of a scheduled kernel, on a target. `values`: the number of the argument that has the values of
// the variables; -1: none.
absl::StatusOr<KernelWork> WorkOf(const FrozenGraph& kernel, int64_t values, const Target& target,
                                  Budget* budget);

}  // namespace telegrad
