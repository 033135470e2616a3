// Masked reductions become IOTA, GATHER and SCATTER.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"

namespace telegrad {

// An equal graph of the legalized tensor graph `sink`, whose REDUCEs that stand for a range of
// numbers, a read or a write at computed places are gone: what a client spells in n * m steps is
// done in n + m. Integers stay equal to the bit; so do floats, except that n times the same float
// is one product.
absl::StatusOr<FrozenGraph> CollapseReductions(UOp sink, Budget* budget);

}  // namespace telegrad
