// The 16-bit floating-point formats by integer arithmetic: exact conversion from them, one rounding
// into them (to nearest, ties to even, denormals kept), and the sum of a product and a number
// rounded once.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace fakeamd {

struct Half {  // IEEE binary16
  uint16_t bits = 0;
};
struct Brain {  // bfloat16
  uint16_t bits = 0;
};

inline float ToFloat(Half h) {
  const uint32_t sign = uint32_t{h.bits & 0x8000u} << 16;
  const uint32_t rest = h.bits & 0x7fffu;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // As a float of an exponent too small by 112, which the product corrects, also for denormals.
  const float scaled = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(scaled));
}

inline float ToFloat(Brain b) { return std::bit_cast<float>(uint32_t{b.bits} << 16); }

// A double whose rounding to fewer bits, by at least two, is that of the exact sum of `value` and
// `error`.
inline double RoundToOdd(double value, double error) {
  if (error == 0 || !std::isfinite(value)) return value;
  const auto bits = std::bit_cast<int64_t>(value);
  if ((bits & 1) != 0) return value;
  // Toward the error: magnitude grows when the signs agree.
  const bool grows = std::signbit(value) == std::signbit(error);
  return std::bit_cast<double>(grows ? bits + 1 : bits - 1);
}

// a * b + c for products that a double holds exactly (of two 24-bit numbers), rounded to odd.
inline double FmaToOdd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (c - back);
  return RoundToOdd(sum, error);
}

// The format's encoding of x, which has `mantissa` stored bits and exponents of `exponent` bits.
template <int mantissa, int exponent>
uint16_t Encode16(double x) {
  constexpr int kBias = (1 << (exponent - 1)) - 1;
  constexpr uint16_t kInfinity = ((1 << exponent) - 1) << mantissa;
  const auto bits = std::bit_cast<uint64_t>(x);
  const auto sign = static_cast<uint16_t>(bits >> 63 << 15);
  if (std::isnan(x)) {
    const auto payload = static_cast<uint16_t>((bits >> (52 - mantissa)) & ((1 << mantissa) - 1));
    return sign | kInfinity | payload | uint16_t{1 << (mantissa - 1)};
  }
  const int power = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
  if (power > kBias) return sign | kInfinity;
  // The significand with its leading one, and how many of its bits the format does not hold.
  const uint64_t significand = (bits & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
  const int below = power < 1 - kBias ? 1 - kBias - power : 0;
  const int drop = 52 - mantissa + below;
  if (drop > 54) return sign;
  const uint64_t kept = significand >> drop;
  const uint64_t rest = significand & ((uint64_t{1} << drop) - 1);
  const uint64_t tie = uint64_t{1} << (drop - 1);
  const uint64_t rounded = kept + (rest > tie || (rest == tie && (kept & 1) != 0) ? 1 : 0);
  const auto biased = static_cast<uint64_t>(below > 0 ? 0 : power + kBias - 1);
  return sign | static_cast<uint16_t>((biased << mantissa) + rounded);
}

inline Half ToHalf(double x) { return {Encode16<10, 5>(x)}; }
inline Half ToHalf(float x) { return ToHalf(double{x}); }
inline Brain ToBrain(double x) { return {Encode16<7, 8>(x)}; }

}  // namespace fakeamd
