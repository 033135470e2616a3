// The exact value of an element, whatever its type: every finite element is a 64-bit whole number
// times a power of two. CAST is reading that value off the bits and writing it into other bits,
// which rounds once and only there.
#pragma once

#include <cstdint>

#include "engine/types/dtype.h"

namespace telegrad::reference {

struct Exact {
  enum Kind : uint8_t { kFinite, kInfinite, kNan };
  Kind kind = kFinite;
  bool negative = false;
  uint64_t magnitude = 0;  // finite: (-1)^negative * magnitude * 2^exponent
  int exponent = 0;
};

// `bits` are the element's, the lowest of the word; higher ones are ignored.
Exact Decode(const DTypeInfo& type, uint64_t bits);

// To a float type: to nearest, ties to the even code, overflow as the format's `specials` imply:
// infinity, else NaN, else (kFinite) the largest value, which has -0 for NaN. kPowersOfTwo rounds
// to the nearest power, halves up, what is too small to the smallest, and makes NaN of zero and of
// negative values.
uint64_t EncodeFloat(const DTypeInfo& type, const Exact& x);
// To an integer type: truncated, then saturated; NaN gives 0.
uint64_t EncodeSaturated(const DTypeInfo& type, const Exact& x);

// The bits of the least value: minus infinity where there is one.
uint64_t LeastCode(const DTypeInfo& type);

}  // namespace telegrad::reference
