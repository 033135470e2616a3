// From a scheduled kernel to a linear program for a target.
#pragma once

#include <string>

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/ir/program.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/rewrite/pass.h"
#include "engine/types/target.h"

namespace telegrad {

// Adds to `stats`, if given, how the program's accesses are kept inside. `kernel` is
// SINK(END(STORE(INDEX(PARAM 0, ...), value), ranges...)) as the schedule makes it. Tests verify
// and dump after every pass through `options`.
absl::StatusOr<Program> Lower(const FrozenGraph& kernel, const Target& target, std::string name,
                              Budget* budget, BoundsStats* stats = nullptr,
                              const PassOptions& options = {});

}  // namespace telegrad
