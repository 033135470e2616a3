// Operations on floats of which the host's own are not those of the ISA: NaN and signed zeros in
// minima and maxima, and a product and a sum with one rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tests/fakes/amd/half.h"

namespace fakeamd {

// A NaN made quiet; any other value as it is.
inline float Quieted(float x) {
  return x != x ? std::bit_cast<float>(std::bit_cast<uint32_t>(x) | 0x400000u) : x;
}
inline double Quieted(double x) {
  return x != x ? std::bit_cast<double>(std::bit_cast<uint64_t>(x) | uint64_t{1} << 51) : x;
}

inline bool Signalling(float x) { return x != x && (std::bit_cast<uint32_t>(x) & 0x400000u) == 0; }
inline bool Signalling(double x) { return x != x && (std::bit_cast<uint64_t>(x) >> 51 & 1) == 0; }

// Denormals as zeros.
inline float Flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

// a * b + c, rounded once.
inline float Fused(float a, float b, float c) { return std::fma(a, b, c); }

// IEEE 754-2008 minNum and maxNum, as in the mode IEEE: a signalling NaN gives a quiet one, else a
// number wins over NaN; -0 is less than 0.
template <class T>
T Smaller(T a, T b) {
  if (Signalling(a)) return Quieted(a);
  if (Signalling(b)) return Quieted(b);
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T Larger(T a, T b) {
  if (Signalling(a)) return Quieted(a);
  if (Signalling(b)) return Quieted(b);
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

// IEEE 754-2019 minimum and maximum: a NaN wins.
template <class T>
T Minimum(T a, T b) {
  if (a != a) return Quieted(a);
  if (b != b) return Quieted(b);
  return Smaller(a, b);
}
template <class T>
T Maximum(T a, T b) {
  if (a != a) return Quieted(a);
  if (b != b) return Quieted(b);
  return Larger(a, b);
}

// The middle one; with a NaN, the least.
template <class T>
T Middle(T a, T b, T c) {
  if (a != a || b != b || c != c) return Smaller(Smaller(a, b), c);
  return Larger(Smaller(a, b), Smaller(Larger(a, b), c));
}

}  // namespace fakeamd
