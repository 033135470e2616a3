// Exponentials as decompositions.cc spells them, for targets that multiply by a power of two.
#pragma once

#include "engine/ir/graph.h"

namespace telegrad {

// value * 2^exponent: `exponent` is a whole f32 from -254 to 128, and where it is below 0, `value`
// is neither infinite nor NaN.
struct PowerOfTwo {
  UOp value, exponent;
  bool valid() const { return value.valid(); }
};

// What `product` is, if it is the last product of an EXP2 of f32; invalid if it is something else.
PowerOfTwo PowerOf(UOp product);

}  // namespace telegrad
