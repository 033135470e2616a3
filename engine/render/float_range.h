// Which values a float may have, as far as the expression alone says it: what a clamp leaves. So a
// conversion to an integer that holds all of them needs no guard.
#pragma once

#include <limits>

#include "engine/ir/graph.h"

namespace telegrad {

struct FloatRange {
  double lo = -std::numeric_limits<double>::infinity();
  double hi = std::numeric_limits<double>::infinity();
  bool nan = true;  // whether it may be one
};

// Of constants, integers, selections by a comparison with one of the selected values, MAX, NEG,
// sums, products, FLOOR and TRUNC; all values for anything else.
FloatRange RangeOf(UOp value);

// What a CAST rounds to the nearest integer: x, or -x.
struct Nearest {
  UOp x;
  bool negated = false;
};

// x, if `cast` is the i32 nearest to it, halves to even: of x + c - c, where c has no bits for
// fractions, and x is at most 2^22 away from 0. `x` is invalid if it is something else.
Nearest NearestOf(UOp cast);

// Whether the lesser of a float and a constant is -max: MAX(NEG(x), constant).
bool IsNegatedLesser(UOp max);

}  // namespace telegrad
