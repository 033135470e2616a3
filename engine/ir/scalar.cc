#include "engine/ir/scalar.h"

#include <cmath>
#include <limits>

namespace telegrad {

namespace {

// The largest finite value.
double Largest(const DTypeInfo& type) {
  int exponent = (1 << type.exponent_bits) - 1;
  int mantissa = (1 << type.mantissa_bits) - 1;
  if (type.specials == FloatSpecials::kIeee || type.specials == FloatSpecials::kPowersOfTwo) {
    --exponent;
  }
  if (type.specials == FloatSpecials::kNanOnly) --mantissa;
  return std::ldexp(1.0 + std::ldexp(mantissa, -type.mantissa_bits), exponent - type.bias);
}

// To nearest, ties to the even code. Formats without infinity give NaN where the rounded value is
// too large, but the finite ones saturate, NaN included; as ml_dtypes 0.5 does.
double RoundTo(const DTypeInfo& type, double value) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const double largest = Largest(type);
  if (type.specials == FloatSpecials::kPowersOfTwo) {
    // Between powers of two, halves go up, as ml_dtypes does from f32. (Its casts from f64 go by
    // way of f32 and so find 0 in what is smaller; here it is the smallest power.)
    if (!(value > 0) || std::isinf(value)) return kNan;
    int exponent;
    const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
    const double up = std::ldexp(1.0, fraction >= 0.75 ? exponent : exponent - 1);
    const double smallest = std::ldexp(1.0, -type.bias);
    return up > largest ? kNan : std::fmax(up, smallest);
  }
  if (std::isnan(value)) return type.specials == FloatSpecials::kFinite ? -0.0 : kNan;
  double rounded = value;
  if (std::isfinite(value) && value != 0) {
    const int exponent = std::fmax(std::ilogb(value), 1 - type.bias);
    const int quantum = exponent - type.mantissa_bits;
    rounded = std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum);
  }
  if (std::fabs(rounded) > largest) {
    if (type.specials == FloatSpecials::kFinite) return std::copysign(largest, value);
    if (type.specials != FloatSpecials::kIeee) return kNan;
    return std::copysign(std::numeric_limits<double>::infinity(), value);
  }
  if (rounded == 0 && type.specials == FloatSpecials::kNegZeroNan) return 0.0;
  return rounded;
}

// Rounded once.
int64_t FloatFromMagnitude(DType dtype, uint64_t magnitude, bool negative) {
  if (dtype != DType::kFloat64) {
    // What a double cannot hold is rounded to odd, with the lowest bit for all that is below it:
    // two bits more than the type's are enough that rounding again is rounding once.
    const int below = std::bit_width(magnitude) - 53;
    if (below > 0) {
      const uint64_t rest = magnitude & ((uint64_t{1} << below) - 1);
      magnitude = (magnitude - rest) | (rest != 0 ? uint64_t{1} << below : 0);
    }
  }
  const auto value = static_cast<double>(magnitude);
  return ScalarFromDouble(dtype, negative ? -value : value);
}

}  // namespace

bool HasNan(DType dtype) {
  return IsFloat(dtype) && Info(dtype).specials != FloatSpecials::kFinite;
}

int64_t ScalarFromInt(DType dtype, int64_t value) {
  if (IsBool(dtype)) return value != 0;
  if (IsFloat(dtype)) {
    const auto bits = static_cast<uint64_t>(value);
    return FloatFromMagnitude(dtype, value < 0 ? -bits : bits, value < 0);
  }
  const int bits = Info(dtype).bits;
  if (bits == 0 || bits == 64) return value;
  const auto low = static_cast<uint64_t>(value) << (64 - bits);
  return IsSigned(dtype) ? static_cast<int64_t>(low) >> (64 - bits)
                         : static_cast<int64_t>(low >> (64 - bits));
}

int64_t ScalarFromUnsigned(DType dtype, uint64_t value) {
  if (IsFloat(dtype)) return FloatFromMagnitude(dtype, value, false);
  return ScalarFromInt(dtype, static_cast<int64_t>(value));
}

int64_t ScalarFromDouble(DType dtype, double value) {
  if (dtype == DType::kFloat64) return std::bit_cast<int64_t>(value);
  if (dtype == DType::kFloat32) {
    return std::bit_cast<int64_t>(static_cast<double>(static_cast<float>(value)));
  }
  if (IsFloat(dtype)) return std::bit_cast<int64_t>(RoundTo(Info(dtype), value));
  if (dtype == DType::kBool) return value != 0.0;
  if (std::isnan(value) || dtype == DType::kVoid) return 0;
  const int bits = Info(dtype).bits;
  if (IsUnsigned(dtype)) {
    if (value <= 0) return 0;
    const uint64_t max = bits == 64 ? std::numeric_limits<uint64_t>::max() : (1ull << bits) - 1;
    if (value >= std::ldexp(1.0, bits)) return static_cast<int64_t>(max);
    return static_cast<int64_t>(static_cast<uint64_t>(value));
  }
  const double bound = std::ldexp(1.0, bits - 1);
  const int64_t max = static_cast<int64_t>((1ull << (bits - 1)) - 1);
  if (value >= bound) return max;
  if (value < -bound) return -max - 1;
  return static_cast<int64_t>(value);
}

int64_t ReduceIdentity(ReduceKind kind, DType dtype) {
  if (kind == ReduceKind::kAdd) return ScalarFromInt(dtype, 0);
  if (kind == ReduceKind::kMul) return ScalarFromInt(dtype, 1);
  if (IsFloat(dtype)) {
    const bool infinite = Info(dtype).specials == FloatSpecials::kIeee;
    return std::bit_cast<int64_t>(infinite ? -std::numeric_limits<double>::infinity()
                                           : -Largest(Info(dtype)));
  }
  if (IsUnsigned(dtype) || IsBool(dtype)) return 0;
  return -static_cast<int64_t>((1ull << (Info(dtype).bits - 1)) - 1) - 1;
}

int64_t ScalarToMemory(DType dtype, int64_t word) {
  if (!IsFloat(dtype) || dtype == DType::kFloat64) return word;
  const double value = std::bit_cast<double>(word);
  if (dtype == DType::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  const DTypeInfo& type = Info(dtype);
  const int64_t all = (int64_t{1} << (type.exponent_bits + type.mantissa_bits)) - 1;
  const bool has_sign = type.specials != FloatSpecials::kPowersOfTwo;
  const int64_t sign = has_sign && std::signbit(value) ? all + 1 : 0;
  if (std::isnan(value)) {
    if (type.specials == FloatSpecials::kNegZeroNan) return all + 1;
    if (type.specials != FloatSpecials::kIeee) return all;
    const int64_t quiet = int64_t{1} << (type.mantissa_bits - 1);
    return ((int64_t{1} << type.exponent_bits) - 1) << type.mantissa_bits | quiet;
  }
  if (std::isinf(value)) {
    return sign | ((int64_t{1} << type.exponent_bits) - 1) << type.mantissa_bits;
  }
  if (!has_sign) return std::ilogb(value) + type.bias;
  if (value == 0) return sign;
  const int exponent = std::fmax(std::ilogb(value), 1 - type.bias);
  const auto scaled =
      static_cast<int64_t>(std::ldexp(std::fabs(value), type.mantissa_bits - exponent));
  // A normal number's leading one adds 1 to the exponent field, a subnormal's absence leaves it at
  // 0.
  return sign |
         (static_cast<int64_t>(exponent + type.bias - 1) * (int64_t{1} << type.mantissa_bits) +
          scaled);
}

int64_t ScalarFromMemory(DType dtype, int64_t raw) {
  if (dtype == DType::kFloat64) return raw;
  if (dtype == DType::kFloat32) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(raw));
    return std::bit_cast<int64_t>(static_cast<double>(value));
  }
  if (dtype == DType::kBool) return static_cast<uint8_t>(raw) != 0;
  if (!IsFloat(dtype)) return ScalarFromInt(dtype, raw);
  const DTypeInfo& type = Info(dtype);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const int64_t ones = (int64_t{1} << type.exponent_bits) - 1;
  const int64_t mantissa = raw & ((int64_t{1} << type.mantissa_bits) - 1);
  const int64_t exponent = raw >> type.mantissa_bits & ones;
  double value;
  if (type.specials == FloatSpecials::kPowersOfTwo) {
    value = exponent == ones ? kNan : std::ldexp(1.0, static_cast<int>(exponent) - type.bias);
    return std::bit_cast<int64_t>(value);
  }
  const bool negative = raw >> (type.exponent_bits + type.mantissa_bits) & 1;
  const int64_t full = (int64_t{1} << type.mantissa_bits) - 1;
  if (type.specials == FloatSpecials::kIeee && exponent == ones) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity() : kNan;
  } else if (type.specials == FloatSpecials::kNanOnly && exponent == ones && mantissa == full) {
    value = kNan;
  } else if (type.specials == FloatSpecials::kNegZeroNan && negative && exponent == 0 &&
             mantissa == 0) {
    value = kNan;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - type.bias - type.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa + full + 1),
                       static_cast<int>(exponent) - type.bias - type.mantissa_bits);
  }
  if (std::isnan(value)) return std::bit_cast<int64_t>(kNan);
  return std::bit_cast<int64_t>(negative ? -value : value);
}

}  // namespace telegrad
