// Each elementwise op as a small function on C++ values. Integers compute in uint64_t, whose
// wrap-around truncates to every narrower type's; f32 computes in float, so each step rounds as the
// hardware's does. Casts are lane_exact.h's. Included by lane.cc only.
#pragma once

#include <array>
#include <bit>
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
T Min(T x, T y) {
  return kFloat<T> ? Neg(Max(Neg(x), Neg(y))) : x < y ? x : y;
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
T Sin(T x) {
  return static_cast<T>(std::sin(static_cast<Wider<T>>(x)));
}
template <typename T>
T Pow(T x, T y) {
  return static_cast<T>(std::pow(static_cast<Wider<T>>(x), static_cast<Wider<T>>(y)));
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
T CDiv(T x, T y) {
  if (y == 0) return 0;
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return Neg(x);
  }
  return static_cast<T>(x / y);
}
template <typename T>
T CMod(T x, T y) {
  return y == 0 ? T{0} : Sub(x, Mul(CDiv(x, y), y));
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

// --- bytes of words ---

inline int32_t Dot4(int32_t x, int32_t y, int32_t z) {
  auto sum = static_cast<uint32_t>(z);
  for (int i = 0; i < 4; ++i) {
    const auto a = std::bit_cast<std::array<uint8_t, 4>>(x)[i];
    const auto b = std::bit_cast<std::array<int8_t, 4>>(y)[i];
    sum += static_cast<uint32_t>(a * b);
  }
  return static_cast<int32_t>(sum);
}

// --- Threefry-2x32, 20 rounds ---
//
// Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC11, section 4.2; the
// constants are those of its reference implementation, Random123.

inline uint64_t Threefry(uint64_t counter, uint64_t key) {
  constexpr int kRotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
  constexpr uint32_t kParity = 0x1bd11bda;
  const auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  const uint32_t schedule[3] = {k0, k1, kParity ^ k0 ^ k1};
  uint32_t a = static_cast<uint32_t>(counter) + k0;
  uint32_t b = static_cast<uint32_t>(counter >> 32) + k1;
  for (uint32_t round = 0; round < 20; ++round) {
    a += b;
    b = std::rotl(b, kRotations[round % 8]) ^ a;
    if (round % 4 != 3) continue;
    const uint32_t n = round / 4 + 1;  // of the key injection
    a += schedule[n % 3];
    b += schedule[(n + 1) % 3] + n;
  }
  return uint64_t{b} << 32 | a;
}

}  // namespace telegrad::reference::lane_ops
