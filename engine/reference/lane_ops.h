// Each elementwise op as a small function on C++ values. Integers compute in uint64_t, whose
// wrap-around truncates to every narrower type's; f32 computes in float, so each step rounds as the
// hardware's does. Included by lane.cc only.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace telegrad::reference::lane_ops {

// --- ops on all number types ---

template <typename T>
constexpr bool kFloat = std::is_floating_point_v<T>;

template <typename T>
uint64_t Wide(T x) {
  return static_cast<uint64_t>(x);
}

template <typename T>
T Neg(T x) {
  if constexpr (kFloat<T>)
    return -x;
  else
    return static_cast<T>(0 - Wide(x));
}
template <typename T>
T Add(T x, T y) {
  if constexpr (kFloat<T>)
    return x + y;
  else
    return static_cast<T>(Wide(x) + Wide(y));
}
template <typename T>
T Sub(T x, T y) {
  if constexpr (kFloat<T>)
    return x - y;
  else
    return static_cast<T>(Wide(x) - Wide(y));
}
template <typename T>
T Mul(T x, T y) {
  if constexpr (kFloat<T>)
    return x * y;
  else
    return static_cast<T>(Wide(x) * Wide(y));
}
template <typename T>
T MulAcc(T x, T y, T z) {
  if constexpr (kFloat<T>)
    return std::fma(x, y, z);
  else
    return static_cast<T>(Wide(x) * Wide(y) + Wide(z));
}
template <typename T>
T Max(T x, T y) {
  if constexpr (kFloat<T>) {
    if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<T>::quiet_NaN();
    if (x == y) return std::signbit(x) ? y : x;
  }
  return x > y ? x : y;
}
template <typename T>
bool CmpLt(T x, T y) {
  return x < y;
}
template <typename T>
bool CmpEq(T x, T y) {
  return x == y;
}
template <typename T>
bool CmpNe(T x, T y) {
  return x != y;
}

// --- floats ---

// One precision more than the type's, so that the result is within an ulp of the true value.
template <typename T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;

template <typename T>
T Exp2(T x) {
  return static_cast<T>(std::exp2(static_cast<Wider<T>>(x)));
}
template <typename T>
T Log2(T x) {
  return static_cast<T>(std::log2(static_cast<Wider<T>>(x)));
}
template <typename T>
T Sqrt(T x) {
  return std::sqrt(x);
}
template <typename T>
T Recip(T x) {
  return T{1} / x;
}
template <typename T>
T Trunc(T x) {
  return std::trunc(x);
}
template <typename T>
T Floor(T x) {
  return std::floor(x);
}
template <typename T>
T FDiv(T x, T y) {
  return x / y;
}

// --- integers ---

template <typename T>
T FloorDiv(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return Neg(x);
    const T q = static_cast<T>(x / y);
    return x % y != 0 && (x < 0) != (y < 0) ? static_cast<T>(q - 1) : q;
  } else {
    return static_cast<T>(x / y);
  }
}
template <typename T>
T FloorMod(T x, T y) {
  return y == 0 ? T{0} : Sub(x, Mul(FloorDiv(x, y), y));
}
template <typename T>
bool Oversized(T y) {
  constexpr T kWidth = 8 * sizeof(T);
  if constexpr (std::is_signed_v<T>) {
    if (y < 0) return true;
  }
  return y >= kWidth;
}
template <typename T>
T Shl(T x, T y) {
  return Oversized(y) ? T{0} : static_cast<T>(Wide(x) << y);
}
template <typename T>
T Shr(T x, T y) {
  if (!Oversized(y)) return static_cast<T>(x >> y);
  return static_cast<T>(x < T{0} ? -1 : 0);
}
template <typename T>
T And(T x, T y) {
  return static_cast<T>(x & y);
}
template <typename T>
T Or(T x, T y) {
  return static_cast<T>(x | y);
}
template <typename T>
T Xor(T x, T y) {
  return static_cast<T>(x ^ y);
}

// --- conversions ---

template <typename To, typename From>
To Cast(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From{0};
  } else if constexpr (kFloat<From> && !kFloat<To>) {
    if (std::isnan(x)) return 0;
    // Both bounds are powers of two (or 0), which every float type holds.
    const From whole = std::trunc(x);
    constexpr int kBits = std::numeric_limits<To>::digits;
    if (whole >= std::ldexp(From{1}, kBits)) return std::numeric_limits<To>::max();
    const From least = std::is_signed_v<To> ? -std::ldexp(From{1}, kBits) : From{0};
    if (whole < least) return std::numeric_limits<To>::min();
    return static_cast<To>(whole);
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace telegrad::reference::lane_ops
