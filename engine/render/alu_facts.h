// What bounds and constants say of an elementwise node's operands, by which guards are left out.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/ir/graph.h"

namespace telegrad {

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
