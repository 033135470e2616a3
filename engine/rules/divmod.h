// The index engine: sums, floor division, floor modulo and comparison of signed integers, so that
// the index arithmetic of reshapes, pads, strides and windows becomes affine wherever it is.
#pragma once

#include "engine/rewrite/rule.h"

namespace telegrad {

// To be used after kAlgebra: Rewriter b(&graph, {&kAlgebra, &kDivMod}, &budget).
//
// The form it reaches: a sum is one chain of ADDs, like terms merged, in the order of
// rules/order.h, the constant last; subtraction and negation are multiplication by -1. In x / c and
// x % c with c > 0, x has coefficients below c and a constant in [0, c). A comparison with a
// constant has no common factor. Measure: the coefficients and divisors, then the number of terms.
extern const RuleTable kDivMod;

}  // namespace telegrad
