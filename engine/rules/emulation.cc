// Kernels have no packed types: engine/schedule/legalize carries those as bytes.
//
// A float format of n bits, exponent bias b and m mantissa bits, seen as a magnitude (the code
// without its sign) and a sign.
//
// Decoding: magnitude << (23 - m) has its fields where f32 has them, and adding 127 - b to the
// exponent gives the value of a normal number. A subnormal one is its mantissa, an integer, times
// 2^(1 - b - m).
//
// Encoding is rounding of the magnitude's bits at bit 23 - m, ties to even: a carry moves into the
// exponent, and from the largest finite code beyond it. Below the format's normal range adding
// 2^(24 - b - m) to the value leaves a mantissa that counts its smallest subnormals, rounded by the
// addition. No step meets a subnormal f32 that the format could tell from 0, but for bf16, whose
// codes are the upper halves of f32's at all exponents.
//
// Rounding to odd: where a value lies between two neighbours, the one whose last bit is 1. Being
// neither a value nor a midpoint of a format that has two bits less, it is then rounded like the
// value itself.
#include "engine/rules/emulation.h"

#include <cmath>
#include <limits>

#include "engine/ir/scalar.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/term.h"

namespace telegrad {
namespace {

using namespace pattern;  // NOLINT: the names of rows

constexpr int64_t kSign = 0x80000000, kInfinity = 0x7f800000, kNan = 0x7fc00000;

// The unsigned integer that has a format's bits.
DType CodeType(DType dtype) { return Info(dtype).bits == 8 ? DType::kUInt8 : DType::kUInt16; }

int64_t CodeOf(DType dtype, double value) {
  return ScalarToMemory(dtype, ScalarFromDouble(dtype, value));
}

// What the two directions need of a format.
struct Narrow {
  explicit Narrow(DType dtype) : info(Info(dtype)), shift(23 - info.mantissa_bits) {}
  // What f32's exponent of a value is more than the format's, where f32 has its exponent.
  int64_t rebias() const { return int64_t{127 - info.bias} << 23; }
  // A code is the upper part of f32's.
  bool like_f32() const { return info.exponent_bits == 8 && info.bias == 127; }
  // How many codes there are of one sign.
  int64_t magnitudes() const { return int64_t{1} << (info.bits - 1); }
  const DTypeInfo& info;
  int shift;
};

Term DecodePowerOfTwo(Term code) {
  // 2^-127 is subnormal, all bits set is NaN.
  const Term low = code.Equals(code.Word(0)).Select(code.Word(0x00400000), code << 23);
  return code.Equals(code.Word(0xff)).Select(code.Word(kNan), low).Bitcast(DType::kFloat32);
}

Term Decode(Term value) {
  const DType dtype = value.u.dtype();
  const Narrow format(dtype);
  const FloatSpecials specials = format.info.specials;
  const Term code = value.Bitcast(CodeType(dtype)).Cast(DType::kUInt32);
  if (specials == FloatSpecials::kPowersOfTwo) return DecodePowerOfTwo(code);
  if (format.like_f32()) return (code << format.shift).Bitcast(DType::kFloat32);

  const Term magnitude = code & (format.magnitudes() - 1);
  const Term sign = (code ^ magnitude) << (32 - format.info.bits);
  const double unit = std::ldexp(1.0, 1 - format.info.bias - format.info.mantissa_bits);
  // By way of i32, which converts in one instruction.
  const Term count = magnitude.Cast(DType::kInt32).Cast(DType::kFloat32);
  const Term subnormal = (count * count.Number(unit)).Bitcast(DType::kUInt32);
  const Term normal = (magnitude << format.shift) + magnitude.Word(format.rebias());
  const Term least_normal = magnitude.Word(int64_t{1} << format.info.mantissa_bits);
  Term bits = (magnitude < least_normal).Select(subnormal, normal);
  switch (specials) {
    case FloatSpecials::kIeee: {
      const double inf = std::numeric_limits<double>::infinity();
      const Term last = magnitude.Word(CodeOf(dtype, inf) - 1);
      bits = (last < magnitude).Select(bits | kInfinity, bits);
      break;
    }
    case FloatSpecials::kNanOnly:
      bits = magnitude.Equals(magnitude.Word(format.magnitudes() - 1))
                 .Select(magnitude.Word(kNan), bits);
      break;
    case FloatSpecials::kNegZeroNan:
      bits = code.Equals(code.Word(format.magnitudes())).Select(code.Word(kNan), bits);
      break;
    default:
      break;
  }
  return (bits | sign).Bitcast(DType::kFloat32);
}

// Halves round up; zero and what is negative or too large is NaN.
Term EncodePowerOfTwo(Term bits) {
  const Term rounded = (bits + bits.Word(0x00400000)) >> 23;
  const Term code = (bits < bits.Word(0x00600000)).Select(bits.Word(0), rounded);
  // One below zero wraps beyond the last.
  const Term in_range = (bits - bits.Word(1)) < bits.Word(0x7f3fffff);
  return in_range.Select(code, bits.Word(0xff));
}

Term Code(Term value, DType dtype) {
  const Narrow format(dtype);
  const FloatSpecials specials = format.info.specials;
  const Term bits = value.Bitcast(DType::kUInt32);
  if (specials == FloatSpecials::kPowersOfTwo) return EncodePowerOfTwo(bits);

  const Term magnitude = bits & (kSign - 1);
  const Term even = (magnitude >> format.shift) & 1;
  const Term half = magnitude.Word((int64_t{1} << (format.shift - 1)) - 1 - format.rebias());
  Term code = (magnitude + half + even) >> format.shift;
  if (!format.like_f32()) {
    const Term absolute = magnitude.Bitcast(DType::kFloat32);
    const double unit = std::ldexp(1.0, 24 - format.info.bias - format.info.mantissa_bits);
    const Term sum = (absolute + absolute.Number(unit)).Bitcast(DType::kUInt32);
    const Term subnormal = sum - absolute.Number(unit).Bitcast(DType::kUInt32);
    const Term least_normal = magnitude.Word(format.rebias() + (int64_t{1} << 23));
    code = (magnitude < least_normal).Select(subnormal, code);
  }
  // What rounding carried beyond the largest value.
  const bool ieee = specials == FloatSpecials::kIeee;
  const double inf = std::numeric_limits<double>::infinity();
  const int64_t nan = CodeOf(dtype, std::numeric_limits<double>::quiet_NaN());
  const int64_t over = ieee ? CodeOf(dtype, inf) : nan;
  const int64_t largest = ieee ? over - 1 : format.magnitudes() - 1;
  const Term last = code.Word(specials == FloatSpecials::kNanOnly ? largest - 1 : largest);
  const Term beyond = last < code;
  const Term sign = (bits ^ magnitude) >> (32 - format.info.bits);
  if (specials == FloatSpecials::kNegZeroNan) {
    // Neither zero nor NaN has a sign.
    const Term zero = code.Equals(code.Word(0));
    const Term is_signed = zero.Select(code, code | sign);
    code = beyond.Select(code.Word(over), is_signed);
  } else {
    code = beyond.Select(code.Word(over), code) | sign;
  }
  const Term is_nan = magnitude.Word(kInfinity) < magnitude;
  return is_nan.Select(code.Word(nan), code);
}

Term Encode(Term value, DType dtype) {
  return Code(value, dtype).Cast(CodeType(dtype)).Bitcast(dtype);
}

// An f64 as f32, rounded to odd.
Term RoundToOdd(Term value) {
  const Term nearest = value.Cast(DType::kFloat32);
  const Term back = nearest.Cast(DType::kFloat64);
  const Term bits = nearest.Bitcast(DType::kUInt32), one = bits.Word(1), zero = bits.Word(0);
  const auto absolute = [](Term v) {
    return (v.Bitcast(DType::kUInt64) & std::numeric_limits<int64_t>::max());
  };
  const Term too_far = absolute(value) < absolute(back);
  const Term toward_zero = bits - too_far.Select(one, zero);
  return (toward_zero | back.Differs(value).Select(one, zero)).Bitcast(DType::kFloat32);
}

// An integer of 64 bits as f64. From 2^53 on its last 11 bits are rounded to odd.
Term RoundToOddInteger(Term value) {
  const bool is_unsigned = IsUnsigned(value.u.dtype());
  const Term low = value & 0x7ff, high = value ^ low;
  const Term zero = value.Word(0);
  const Term odd = high | low.Differs(zero).Select(value.Word(0x800), zero);
  const int64_t limit = int64_t{1} << 53;
  Term exact = value < value.Word(limit);
  if (!is_unsigned) exact = exact & (value.Word(-limit) < value);
  return exact.Select(value, odd).Cast(DType::kFloat64);
}

// A value of any type as a float type that holds it well enough to be rounded to a narrow one; the
// value itself if it needs no step between.
Term Widened(Term value) {
  const DType from = value.u.dtype();
  if (from == DType::kFloat32) return value;
  if (from == DType::kFloat64) return RoundToOdd(value);
  const int bits = IsFloat(from) ? 16 : Info(from).bits;
  if (bits <= 16) return value.Cast(DType::kFloat32);
  if (bits == 32) return RoundToOdd(value.Cast(DType::kFloat64));
  return RoundToOdd(RoundToOddInteger(value));
}

// The target converts the type to f32 and back, and so to all that is reached by way of f32.
template <DType kType>
UOp NativeCast(Rewriter& b, const Match& m) {
  const DType from = m.x().dtype();
  const bool exact_in_f32 = from == DType::kFloat32 || (!IsFloat(from) && Info(from).bits <= 16);
  if (m.root.dtype() != kType || from == kType || exact_in_f32) return {};
  return b.Make(Op::kCast, kType, {Widened({&b, m.x()}).u});
}

template <DType kType>
UOp EmulatedCast(Rewriter& b, const Match& m) {
  const Term value{&b, m.x()};
  const DType to = m.root.dtype(), from = m.x().dtype();
  if (to == from) return {};
  if (from == kType) {
    const Term decoded = Decode(value);
    return to == DType::kFloat32 ? decoded.u : decoded.Cast(to).u;
  }
  return to == kType ? Encode(Widened(value), kType).u : UOp();
}

// Negation of a format with two zeros.
bool NegatesBySign(Op op, DType dtype) {
  const FloatSpecials specials = Info(dtype).specials;
  return op == Op::kNeg &&
         (specials == FloatSpecials::kIeee || specials == FloatSpecials::kNanOnly);
}

template <DType kType>
UOp ThroughF32(Rewriter& b, const Match& m) {
  const UOp u = m.root;
  const bool selects = u.is(Op::kCast) || u.is(Op::kBitcast) || u.is(Op::kWhere);
  if ((!Is(u.op(), kAlu) || selects) && !u.is(Op::kReduce)) return {};
  if (u.src(0).dtype() != kType) return {};
  if (NegatesBySign(u.op(), kType)) {
    const Term code = Term{&b, u.src(0)}.Bitcast(CodeType(kType));
    return (code ^ (int64_t{1} << (Info(kType).bits - 1))).Bitcast(kType).u;
  }
  std::vector<UOp> src;
  for (int i = 0; i < u.num_src(); ++i) {
    // A REDUCE's other sources are its ranges.
    const UOp s = u.src(i);
    src.push_back(s.dtype() == kType ? b.Make(Op::kCast, DType::kFloat32, {s}) : s);
  }
  const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
  const UOp wide = b.Make(u.op(), DType::kVoid, src, arg);
  return wide.valid() && wide.dtype() == DType::kFloat32 ? b.Make(Op::kCast, kType, {wide}) : wide;
}

template <DType kType>
constexpr Rule kArithmeticRows[] = {
    rule(x, ThroughF32<kType>, when(kFloats)),
    rule(Pat::Of(Op::kReduce, x), ThroughF32<kType>, when(kFloats)),
};
template <DType kType>
constexpr Rule kEmulatedCastRows[] = {
    rule(cast(x), EmulatedCast<kType>),
};
template <DType kType>
constexpr Rule kNativeCastRows[] = {
    rule(cast(x), NativeCast<kType>),
};

// The tables of one type.
struct EmulationRow {
  DType dtype;
  RuleTable arithmetic, emulated_casts, native_casts;
};

template <DType kType>
constexpr EmulationRow RowOf() {
  return {kType,
          {"emulated-arithmetic", kArithmeticRows<kType>},
          {"emulated-casts", kEmulatedCastRows<kType>},
          {"native-casts", kNativeCastRows<kType>}};
}

constexpr EmulationRow kEmulationRows[] = {
    RowOf<DType::kFloat16>(),    RowOf<DType::kBFloat16>(),       RowOf<DType::kFloat8E4M3>(),
    RowOf<DType::kFloat8E5M2>(), RowOf<DType::kFloat8E4M3Fnuz>(), RowOf<DType::kFloat8E5M2Fnuz>(),
    RowOf<DType::kFloat8E8M0>(),
};

}  // namespace

std::vector<const RuleTable*> EmulationTables(const Target& target) {
  std::vector<const RuleTable*> tables;
  for (const EmulationRow& row : kEmulationRows) {
    if (target.computes.Has(row.dtype)) continue;
    if (!IsStorage(row.dtype)) tables.push_back(&row.arithmetic);
    const bool native = target.converts.Has(row.dtype);
    tables.push_back(native ? &row.native_casts : &row.emulated_casts);
  }
  return tables;
}

}  // namespace telegrad
