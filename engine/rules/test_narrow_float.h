// Floats under 32 bits for the tests' evaluator: a format's values listed by code, rounding by
// search in the list.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/types/dtype.h"

namespace telegrad::test {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The value of a code that is no NaN; codes above the format's are cut.
inline double DecodeNumber(DType dtype, uint64_t code) {
  const DTypeInfo& f = Info(dtype);
  const double inf = std::numeric_limits<double>::infinity();
  const uint64_t codes = uint64_t{1} << f.bits;
  code %= codes;
  if (f.specials == FloatSpecials::kPowersOfTwo) {
    return code == codes - 1 ? kNaN : std::exp2(static_cast<double>(code) - f.bias);
  }
  const bool negative = code >= codes / 2;
  const uint64_t magnitude = code % (codes / 2);
  if (f.specials == FloatSpecials::kNanOnly && magnitude == codes / 2 - 1) return kNaN;
  if (f.specials == FloatSpecials::kNegZeroNan && code == codes / 2) return kNaN;
  const uint64_t binade = uint64_t{1} << f.mantissa_bits;
  const auto exponent = static_cast<int>(magnitude / binade);
  const auto fraction = static_cast<double>(magnitude % binade) / static_cast<double>(binade);
  double value = exponent == 0 ? std::ldexp(fraction, 1 - f.bias)
                               : std::ldexp(1 + fraction, exponent - f.bias);
  if (f.specials == FloatSpecials::kIeee && exponent == (1 << f.exponent_bits) - 1) {
    value = fraction == 0 ? inf : kNaN;
  }
  return negative ? -value : value;
}

// The value of a code. A NaN remembers which one it was, as bits do.
inline double DecodeFloat(DType dtype, uint64_t code) {
  const double value = DecodeNumber(dtype, code);
  if (!std::isnan(value)) return value;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(kNaN) | code % (1u << Info(dtype).bits));
}

// The code of a value of the format.
inline uint64_t EncodeFloat(DType dtype, double value) {
  const uint64_t codes = uint64_t{1} << Info(dtype).bits;
  const uint64_t remembered = std::bit_cast<uint64_t>(value) % codes;
  if (std::isnan(value) && std::isnan(DecodeFloat(dtype, remembered))) return remembered;
  if (std::isnan(value) && Info(dtype).specials == FloatSpecials::kIeee) {  // quiet, positive
    return codes / 2 - (uint64_t{1} << (Info(dtype).mantissa_bits - 1));
  }
  for (uint64_t code = 0; code < codes; ++code) {
    const double v = DecodeFloat(dtype, code);
    if (std::isnan(value) ? std::isnan(v) : v == value && std::signbit(v) == std::signbit(value)) {
      return code;
    }
  }
  return 0;
}

// The finite values from 0 on.
inline const std::vector<double>& Magnitudes(DType dtype) {
  static std::vector<std::vector<double>> lists(AllDTypes().size());
  std::vector<double>& list = lists[static_cast<size_t>(dtype)];
  for (uint64_t code = 0; list.size() == code && code < uint64_t{1} << Info(dtype).bits; ++code) {
    const double v = DecodeFloat(dtype, code);
    if (std::isfinite(v) && !std::signbit(v)) list.push_back(v);
  }
  return list;
}

inline double RoundNarrow(DType dtype, double v) {
  const FloatSpecials specials = Info(dtype).specials;
  const std::vector<double>& list = Magnitudes(dtype);
  const bool powers = specials == FloatSpecials::kPowersOfTwo;
  if (powers && (std::isinf(v) || !(v > 0))) return kNaN;
  if (std::isnan(v)) return specials == FloatSpecials::kFinite ? -0.0 : kNaN;
  const double a = std::fabs(v);
  // The value that would follow the largest.
  const size_t n = list.size();
  const double beyond = powers ? 2 * list[n - 1] : 2 * list[n - 1] - list[n - 2];
  size_t above = std::upper_bound(list.begin(), list.end(), a) - list.begin();
  size_t nearest = above == 0 ? 0 : above - 1;
  if (above > 0) {
    const double low = list[above - 1], high = above < n ? list[above] : beyond;
    const double middle = low + (high - low) / 2;
    const bool tie_up = powers || above % 2 == 0;  // `above` is the code of `high`
    if (a > middle || (a == middle && tie_up)) nearest = above;
  }
  if (a >= beyond) nearest = n;
  const double sign = std::signbit(v) ? -1 : 1;
  if (nearest == n) {
    if (specials == FloatSpecials::kFinite) return sign * list[n - 1];
    if (specials == FloatSpecials::kIeee) return sign * std::numeric_limits<double>::infinity();
    return kNaN;
  }
  if (specials == FloatSpecials::kNegZeroNan && nearest == 0) return 0;
  return std::copysign(list[nearest], sign);
}

}  // namespace telegrad::test
