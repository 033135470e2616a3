// The interpreter of one rule at one node.
#pragma once

#include <string>

#include "engine/rewrite/rewriter.h"
#include "engine/rewrite/rule.h"

namespace telegrad {

// The replacement that `rule` gives for `u`, built with `b`; invalid where it does not match. The
// operands of commutative ops are tried in both orders.
UOp Apply(const Rule& rule, UOp u, Rewriter& b);

// For the dispatch, which knows both beforehand: in how many orders of its operands a pattern is
// tried, and Apply at a node whose type the row admits.
uint32_t CountOrders(const Pat& lhs);
UOp ApplyOrders(const Rule& rule, uint32_t orders, UOp u, Rewriter& b);

// The type that a row's Types are about: that of source 0, if there is one.
inline DType ElementType(UOp root) {
  return root.num_src() > 0 ? root.src(0).dtype() : root.dtype();
}

// Why `rule` does or does not match `u`, for people: the subpattern that met something else, or the
// part of the condition that is false and the values in it. %5 is the node of id 5.
std::string Explain(const Rule& rule, UOp u, Rewriter& b);

}  // namespace telegrad
