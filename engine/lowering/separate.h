// Gives each loop its own range.
#pragma once

#include "engine/ir/graph.h"

namespace telegrad {

// Several REDUCEs may reduce over one RANGE node, and an END may close it as well. They stay one
// loop where REDUCEs over the same ranges, inside of the same loops, need equally many others one
// below the other. Every other REDUCE gets ranges of its own. The ENDs of several roots share
// theirs.
UOp SeparateRanges(Graph* graph, UOp sink);

}  // namespace telegrad
