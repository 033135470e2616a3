// A float code is read as one number: the exponent field over the mantissa field. Neighbouring
// codes are neighbouring values, so that rounding a mantissa up into the next power of two is a
// carry, and too large is a comparison with the largest finite code.
#include "engine/reference/lane_exact.h"

#include <algorithm>
#include <bit>

namespace telegrad::reference {
namespace {

uint64_t Low(int bits) { return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

bool HasSign(const DTypeInfo& type) { return type.specials != FloatSpecials::kPowersOfTwo; }

// Of a positive number.
uint64_t LargestCode(const DTypeInfo& type) {
  const uint64_t all = Low(type.exponent_bits + type.mantissa_bits);
  switch (type.specials) {
    case FloatSpecials::kIeee:
      return all - (uint64_t{1} << type.mantissa_bits);
    case FloatSpecials::kNanOnly:
    case FloatSpecials::kPowersOfTwo:
      return all - 1;
    default:
      return all;
  }
}

uint64_t NanCode(const DTypeInfo& type) {
  const uint64_t all = Low(type.exponent_bits + type.mantissa_bits);
  switch (type.specials) {
    case FloatSpecials::kIeee:  // the quiet one
      return LargestCode(type) + 1 + (uint64_t{1} << (type.mantissa_bits - 1));
    case FloatSpecials::kNegZeroNan:
    case FloatSpecials::kFinite:
      return all + 1;  // the code of -0
    default:
      return all;
  }
}

Exact DecodeFloat(const DTypeInfo& type, uint64_t bits) {
  Exact x;
  const uint64_t code = bits & Low(type.exponent_bits + type.mantissa_bits);
  x.negative = HasSign(type) && (bits >> (type.bits - 1) & 1) != 0;
  if (type.specials == FloatSpecials::kNegZeroNan && x.negative && code == 0) {
    x.kind = Exact::kNan;
    return x;
  }
  if (code > LargestCode(type)) {
    const bool infinite = type.specials == FloatSpecials::kIeee && code == LargestCode(type) + 1;
    x.kind = infinite ? Exact::kInfinite : Exact::kNan;
    return x;
  }
  const int field = static_cast<int>(code >> type.mantissa_bits);
  x.magnitude = code & Low(type.mantissa_bits);
  x.exponent = std::max(field, 1) - type.bias - type.mantissa_bits;
  if (field > 0) x.magnitude += uint64_t{1} << type.mantissa_bits;
  if (type.specials == FloatSpecials::kPowersOfTwo) {  // nothing is subnormal
    x.magnitude = 1;
    x.exponent = field - type.bias;
  }
  return x;
}

Exact DecodeInt(const DTypeInfo& type, uint64_t bits) {
  Exact x;
  x.magnitude = bits & Low(type.bits);
  if (type.kind == DTypeKind::kSigned && (x.magnitude >> (type.bits - 1)) != 0) {
    x.negative = true;
    x.magnitude = (0 - x.magnitude) & Low(type.bits);
  }
  return x;
}

// x / 2^shift for shift > 0, to nearest, ties to even.
uint64_t RoundedShift(uint64_t x, int shift) {
  if (shift > 64) return 0;
  const uint64_t whole = shift == 64 ? 0 : x >> shift;
  const uint64_t rest = x & Low(shift);
  const uint64_t half = uint64_t{1} << (shift - 1);
  return whole + (rest > half || (rest == half && whole % 2 != 0) ? 1 : 0);
}

uint64_t EncodePower(const DTypeInfo& type, const Exact& x) {
  if (x.kind != Exact::kFinite || x.negative || x.magnitude == 0) return NanCode(type);
  const int top = std::bit_width(x.magnitude) - 1;
  const bool up = top > 0 && (x.magnitude >> (top - 1) & 1) != 0;  // at least 1.5 times the power
  const int code = top + x.exponent + (up ? 1 : 0) + type.bias;
  if (code > static_cast<int>(LargestCode(type))) return NanCode(type);
  return static_cast<uint64_t>(std::max(code, 0));
}

}  // namespace

Exact Decode(const DTypeInfo& type, uint64_t bits) {
  if (type.kind == DTypeKind::kFloat) return DecodeFloat(type, bits);
  if (type.kind == DTypeKind::kBoolean) return {.magnitude = (bits & 0xff) != 0 ? 1u : 0u};
  return DecodeInt(type, bits);
}

uint64_t EncodeFloat(const DTypeInfo& type, const Exact& x) {
  if (!HasSign(type)) return EncodePower(type, x);
  if (x.kind == Exact::kNan) return NanCode(type);
  const uint64_t largest = LargestCode(type);
  uint64_t code = 0;
  if (x.kind == Exact::kInfinite) {
    code = largest + 1;
  } else if (x.magnitude != 0) {
    // The exponent that the result would have with more mantissa bits, and the weight of its last
    // bit.
    const int top = std::bit_width(x.magnitude) - 1 + x.exponent;
    const int exponent = std::max(top, 1 - type.bias);
    const int last = exponent - type.mantissa_bits;
    const uint64_t mantissa = x.exponent >= last ? x.magnitude << (x.exponent - last)
                                                 : RoundedShift(x.magnitude, last - x.exponent);
    // A normal number's leading one is the 1 that is taken off here.
    code = (static_cast<uint64_t>(exponent + type.bias - 1) << type.mantissa_bits) + mantissa;
  }
  if (code > largest) {
    if (type.specials == FloatSpecials::kFinite) {
      code = largest;
    } else if (type.specials == FloatSpecials::kIeee) {
      code = largest + 1;
    } else {
      return NanCode(type);
    }
  }
  if (code == 0 && type.specials == FloatSpecials::kNegZeroNan) return 0;
  return code | (x.negative ? uint64_t{1} << (type.bits - 1) : 0);
}

uint64_t EncodeSaturated(const DTypeInfo& type, const Exact& x) {
  if (x.kind == Exact::kNan) return 0;
  const bool is_signed = type.kind == DTypeKind::kSigned;
  const uint64_t most = Low(is_signed ? type.bits - 1 : type.bits);
  const uint64_t limit = !x.negative ? most : is_signed ? most + 1 : 0;
  uint64_t whole = limit;
  if (x.kind == Exact::kFinite) {
    const int top = std::bit_width(x.magnitude) + x.exponent;  // |x| < 2^top
    if (x.magnitude == 0 || top <= 0) {
      whole = 0;
    } else if (top <= 64) {
      whole = x.exponent >= 0 ? x.magnitude << x.exponent : x.magnitude >> -x.exponent;
    }
  }
  whole = std::min(whole, limit);
  return (x.negative ? 0 - whole : whole) & Low(type.bits);
}

uint64_t LeastCode(const DTypeInfo& type) {
  const Exact least{.kind = Exact::kInfinite, .negative = true};
  if (type.kind != DTypeKind::kFloat) return EncodeSaturated(type, least);
  const uint64_t infinite = type.specials == FloatSpecials::kIeee ? 1 : 0;
  return uint64_t{1} << (type.bits - 1) | (LargestCode(type) + infinite);
}

}  // namespace telegrad::reference
