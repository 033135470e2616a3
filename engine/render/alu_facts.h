// What bounds and constants say of an elementwise node's operands, by which guards are left out.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/base/checked.h"
#include "engine/ir/graph.h"

namespace telegrad {

// Whether the bounds of both operands show that the integer ADD, SUB or MUL never wraps.
inline bool IsExact(UOp u) {
  const Interval x = u.src(0).bounds(), y = u.src(1).bounds();
  const auto apply = u.is(Op::kAdd) ? CheckedAdd : u.is(Op::kSub) ? CheckedSub : CheckedMul;
  const int bits = Info(u.dtype()).bits;
  const bool is_signed = IsSigned(u.dtype());
  if (bits == 64 && !is_signed) return false;  // beyond what bounds say
  const int64_t most = bits == 64  ? INT64_MAX
                       : is_signed ? (int64_t{1} << (bits - 1)) - 1
                                   : (int64_t{1} << bits) - 1;
  const int64_t least = is_signed ? -most - 1 : 0;
  for (const int64_t a : {x.lo, x.hi}) {
    for (const int64_t b : {y.lo, y.hi}) {
      int64_t value;
      if (!apply(a, b, &value) || value < least || value > most) return false;
    }
  }
  return true;
}

// Of a division. Bounds say nothing of u64 beyond INT64_MAX, where they are unknown.
inline bool DivisorIsPositive(UOp division) { return division.src(1).vmin() > 0; }
inline bool DivisionIsNonNegative(UOp division) {
  return division.src(0).vmin() >= 0 && DivisorIsPositive(division);
}

// log2 of the divisor, or -1 if that is no constant power of two.
inline int Log2OfDivisor(UOp division) {
  const Interval y = division.src(1).bounds();
  if (!y.constant() || y.lo <= 0 || !std::has_single_bit(static_cast<uint64_t>(y.lo))) return -1;
  return std::countr_zero(static_cast<uint64_t>(y.lo));
}

// The amount of a shift is at least 0 and less than the width.
inline bool ShiftIsInWidth(UOp shift) {
  const Interval y = shift.src(1).bounds();
  return y.lo >= 0 && y.hi < Info(shift.src(0).dtype()).bits;
}

}  // namespace telegrad
