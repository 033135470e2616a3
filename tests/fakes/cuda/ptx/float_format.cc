// Encodes an integer times a power of two in a format, by each rounding mode, with subnormal
// numbers and overflow; and a double together with the sign of its error, so that it is rounded
// as the exact value would be.
#include "tests/fakes/cuda/ptx/float_format.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace fakecuda {
namespace {

uint64_t Sign(const FloatFormat& format, bool negative) {
  return negative ? uint64_t{1} << (format.mantissa + format.exponent) : 0;
}

bool Away(bool negative, bool odd, int half, Round round) {
  // half: the remainder against one half, -1 less, 0 equal, 1 more; there is a remainder.
  switch (round) {
    case Round::kNearest:
      return half > 0 || (half == 0 && odd);
    case Round::kZero:
      return false;
    case Round::kDown:
      return negative;
    default:
      return !negative;
  }
}

}  // namespace

uint64_t Encode(const FloatFormat& format, bool negative, uint64_t mantissa, int exponent,
                Round round) {
  const uint64_t sign = Sign(format, negative);
  if (mantissa == 0) return sign;
  const int top = 63 - std::countl_zero(mantissa);
  const int lowest = 1 - format.bias() - format.mantissa;  // exponent of the smallest subnormal
  int unit = std::max(exponent + top - format.mantissa, lowest);
  const int drop = unit - exponent;
  uint64_t kept = 0;
  if (drop <= 0) {
    kept = mantissa << -drop;
  } else {
    kept = drop > 63 ? 0 : mantissa >> drop;
    const uint64_t rest = drop > 63 ? mantissa : mantissa & ((uint64_t{1} << drop) - 1);
    const uint64_t middle = drop > 64 ? 0 : uint64_t{1} << (drop - 1);
    const int half = drop > 64 ? -1 : rest < middle ? -1 : rest == middle ? 0 : 1;
    if (rest != 0 && Away(negative, (kept & 1) != 0, half, round)) ++kept;
  }
  if (kept >> (format.mantissa + 1) != 0) {
    kept >>= 1;
    ++unit;
  }
  if (kept >> format.mantissa == 0) return sign | kept;  // subnormal, or zero
  const int biased = unit + format.mantissa + format.bias();
  const int infinite = (1 << format.exponent) - 1;
  if (biased >= infinite) {
    const bool up = Away(negative, true, 1, round);
    const uint64_t infinity = static_cast<uint64_t>(infinite) << format.mantissa;
    return sign | (up ? infinity : infinity - 1);
  }
  return sign | static_cast<uint64_t>(biased) << format.mantissa |
         (kept & ((uint64_t{1} << format.mantissa) - 1));
}

uint64_t EncodeDouble(const FloatFormat& format, double value, double error, Round round) {
  const uint64_t ones = (uint64_t{1} << (format.mantissa + format.exponent)) - 1;
  if (std::isnan(value)) return ones;
  const bool negative = std::signbit(value);
  if (std::isinf(value)) {
    return Sign(format, negative) | (((uint64_t{1} << format.exponent) - 1) << format.mantissa);
  }
  if (value == 0) return Sign(format, negative);
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);
  // 53 bits of value and three below them for what the error says.
  uint64_t mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53)) << 3;
  if (error != 0) mantissa = std::signbit(error) == negative ? mantissa + 1 : mantissa - 1;
  return Encode(format, negative, mantissa, exponent - 56, round);
}

double DecodeFloat(const FloatFormat& format, uint64_t bits) {
  const uint64_t fraction = bits & ((uint64_t{1} << format.mantissa) - 1);
  const int exponent = static_cast<int>(bits >> format.mantissa) & ((1 << format.exponent) - 1);
  const bool negative = (bits >> (format.mantissa + format.exponent) & 1) != 0;
  double value = 0;
  if (exponent == (1 << format.exponent) - 1) {
    value = fraction != 0 ? std::nan("") : HUGE_VAL;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(fraction), 1 - format.bias() - format.mantissa);
  } else {
    value = std::ldexp(static_cast<double>(fraction | uint64_t{1} << format.mantissa),
                       exponent - format.bias() - format.mantissa);
  }
  return negative ? -value : value;
}

double RoundToIntegral(double x, Round round) {
  switch (round) {
    case Round::kNearest:
      return std::nearbyint(x);
    case Round::kZero:
      return std::trunc(x);
    case Round::kDown:
      return std::floor(x);
    default:
      return std::ceil(x);
  }
}

}  // namespace fakecuda
