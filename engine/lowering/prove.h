// The last pass of lowering, which decides what is rendered: a look at the final linear program.
#pragma once

#include "absl/status/status.h"
#include "engine/ir/program.h"
#include "engine/rewrite/pass.h"

namespace telegrad {

// INTERNAL, naming nodes by their places in the order: an access that is not proved to stay inside
// its buffer (bounds_proof.h), or two accesses to an argument or to local memory by parallel
// iterations that are not proved to touch different elements (independence_proof.h). The budget's
// errors say nothing of the program. Counts what it has proved: see passes.h.
absl::Status Prove(PassContext& c, const Program& program);

}  // namespace telegrad
