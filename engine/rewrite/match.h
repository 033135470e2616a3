// The interpreter of one rule at one node.
#pragma once

#include <string>

#include "engine/rewrite/rewriter.h"
#include "engine/rewrite/rule.h"

namespace telegrad {

// The replacement that `rule` gives for `u`, built with `b`; invalid where it does not match. The
// operands of commutative ops are tried in both orders.
UOp Apply(const Rule& rule, UOp u, Rewriter& b);

// Why `rule` does or does not match `u`, for people.
std::string Explain(const Rule& rule, UOp u, Rewriter& b);

}  // namespace telegrad
