// One scalar value as the 64-bit word that CONST carries: the bits of an IEEE double for floats
// (already rounded to the dtype), the sign- or zero-extended integer otherwise, 0 or 1 for bool.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/ir/op.h"
#include "engine/types/dtype.h"

namespace telegrad {

// Rounds or wraps to `dtype` with the semantics of CAST in ops.def.
int64_t ScalarFromDouble(DType dtype, double value);
int64_t ScalarFromInt(DType dtype, int64_t value);
int64_t ScalarFromUnsigned(DType dtype, uint64_t value);

inline double ScalarAsDouble(DType dtype, int64_t word) {
  if (IsFloat(dtype)) return std::bit_cast<double>(word);
  if (dtype == DType::kUInt64) return static_cast<double>(static_cast<uint64_t>(word));
  return static_cast<double>(word);
}

// The float type has a NaN.
bool HasNan(DType dtype);

// The word whose low bits, as many as the type has, are the element in memory; and its inverse.
int64_t ScalarToMemory(DType dtype, int64_t word);
int64_t ScalarFromMemory(DType dtype, int64_t raw);

// The word of the identity of a reduction: 0, 1, or the least value.
int64_t ReduceIdentity(ReduceKind kind, DType dtype);
// Whether the result of a REDUCE depends on the order of its terms: each step rounds.
inline bool RoundsInOrder(ReduceKind kind, DType dtype) {
  return IsFloat(dtype) && kind != ReduceKind::kMax;
}

}  // namespace telegrad
