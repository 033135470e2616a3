// Addresses of several lanes at once.
#pragma once

#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// The sources of an INDEX: memory, an index and perhaps a gate, which one lane or several have. The
// index becomes ADD(scalar, IOTA) wherever it is contiguous, so that it can be seen. Of one element
// that every lane reads, gated lane by lane, the gate keeps those conditions that all lanes share:
// it is loaded once, and the lanes are selected afterwards. A gate that always holds is dropped.
void NormalizeAddress(Rewriter& b, std::vector<UOp>* src);

}  // namespace telegrad
