// Results that take the place of operands that nobody reads any more.
#pragma once

#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Pairs of arguments of a kernel, one written and one read, that may be the same memory: of one
// type and size, and an element of the one is only read to compute the same element of the other.
std::vector<std::pair<int64_t, int64_t>> InPlaceArguments(UOp kernel);

// The kernel that writes `read` instead of `written`; the arguments after `written` move up.
FrozenGraph WriteInPlace(UOp kernel, int64_t written, int64_t read);

}  // namespace telegrad
