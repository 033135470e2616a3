// The functions behind the rows of kDecompositions, and the formats they are written for.
#pragma once

#include <span>

#include "engine/rules/term.h"

namespace telegrad {

struct Match;

// f32 or f64, and the polynomials for it, lowest power first.
struct FunctionFormat {
  DType floats, ints, codes;  // codes: the unsigned integer of the width
  int mantissa;               // explicit bits
  int64_t bias;
  double smallest;         // exponent of which both halves are those of 0: -2 * bias
  int64_t one, sqrt_half;  // bits of 1 and of sqrt(1/2)
  int64_t upper;           // mask of the upper half of the mantissa
  double log2e_hi, log2e_lo;
  std::span<const double> exp2, log2, sin, cos;
};
const FunctionFormat& FormatOf(DType dtype);

// x = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)), for finite x > 0; something
// without a meaning for others.
struct Scaled {
  Term mantissa, exponent;  // both floats
};
Scaled ScaleToOne(const FunctionFormat& format, Term x);

// 2^v with v = high + low, where low adds to high's precision; of what is beyond the range or NaN
// only v counts.
Term PowerOfTwo(const FunctionFormat& format, Term v, Term high, Term low);

UOp DecomposeSin(Rewriter& b, const Match& m);
UOp DecomposePow(Rewriter& b, const Match& m);
UOp DecomposeThreefry(Rewriter& b, const Match& m);

}  // namespace telegrad
