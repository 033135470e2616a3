// From a scheduled kernel to a linear program for a target.
#pragma once

#include <string>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/types/target.h"

namespace telegrad {

// How the accesses of a program were shown to be inside their buffers.
struct BoundsStats {
  int64_t proved = 0;
  int64_t gated = 0;  // a run-time gate was added because the proof failed
};

// `kernel` is SINK(END(STORE(INDEX(PARAM 0, ...), value), ranges...)) as the schedule makes it.
absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, BoundsStats* stats = nullptr);

}  // namespace telegrad
