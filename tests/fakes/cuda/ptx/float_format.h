// Binary floating-point formats and exact rounding into them, by integers only: the judge of
// conversions and of half-precision arithmetic.
#pragma once

#include <cstdint>

namespace fakecuda {

struct FloatFormat {
  int mantissa;  // stored bits
  int exponent;  // bits
  int bias() const { return (1 << (exponent - 1)) - 1; }
};

inline constexpr FloatFormat kF16Format = {10, 5};
inline constexpr FloatFormat kBF16Format = {7, 8};
inline constexpr FloatFormat kF32Format = {23, 8};
inline constexpr FloatFormat kF64Format = {52, 11};

enum class Round : uint8_t { kNearest, kZero, kDown, kUp };

// The encoding of +-mantissa * 2^exponent.
uint64_t Encode(const FloatFormat& format, bool negative, uint64_t mantissa, int exponent,
                Round round);
// The encoding of the exact sum of `value` and `error`, which is less than half a unit in the last
// place of `value`. NaN becomes the format's NaN of positive sign with all bits set, as results of
// PTX instructions are.
uint64_t EncodeDouble(const FloatFormat& format, double value, double error, Round round);
// The value of an encoding; exact.
double DecodeFloat(const FloatFormat& format, uint64_t bits);

// x to an integer.
double RoundToIntegral(double x, Round round);

}  // namespace fakecuda
