// What is known of values at the positions of a row that a mask hides.
#pragma once

#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// By induction over the expression:
//
//   kMinusInf  -inf: a masked score
//   kLow       less than -2^126: a score that a mask hides by a finite number, such as the least
//              f32, to which few bounded ones are added, or such a score less the row's maximum
//   kFar       less than -2^61: the same times a positive constant that is not too small
//   kZero      0, an exponential of it less the row's maximum, over the row's sum
//   kTop       the row's maximum, the same at all positions. If it is -inf or no number, the row's
//              results are no numbers, or all of its exponentials are 0, with the hidden ones or
//              without: one of them at least is left
//   kSum       a positive sum over the row, or again one of a row whose results are no numbers
//   kBounded   a number that is computed from arguments by sums and products. It leaves -inf and 0
//              as they are if its arguments have less than a magnitude that a test of them all,
//              once for all rows of a head, finds them to have: otherwise the loops go over all
//              blocks
//
// What is added to or subtracted from a low number is less than 2^120, as bounded values are, so it
// stays low; its exponential is 0, as that of all numbers below -150 is. A row's maximum is no such
// number, so a difference of it is low only where a bounded score of each row is shown.
enum class Hidden {
  kAny,
  kPositive,
  kMinusInf,
  kLow,
  kFar,
  kZero,
  kTop,
  kMinusTop,
  kSum,
  kBounded
};

struct HiddenValue {
  static constexpr int kMostMagnitude = 120;
  static constexpr int kMostAdded = 4;
  Hidden is = Hidden::kAny;
  int magnitude = 0;  // of a bounded or positive value: it is at most 2 to the power of this
  int added = 0;      // to a low one
  bool bounded() const {
    const bool number = is == Hidden::kBounded || is == Hidden::kPositive || is == Hidden::kZero;
    return number && magnitude <= kMostMagnitude;
  }
};

// Bounded arguments are less than this.
inline constexpr double kBoundedArgument = 0x1p24;
inline constexpr int kArgumentMagnitude = 24;

// Of `u`, whose sources have these values. What else has to be bounded for that is added to
// `bounded`.
HiddenValue CombineHidden(Rewriter& b, UOp u, HiddenValue x, HiddenValue y, HiddenValue z,
                          std::vector<UOp>* bounded);

// Of a REDUCE over what the row does not say.
HiddenValue FoldHidden(UOp reduce, HiddenValue body);

}  // namespace telegrad
