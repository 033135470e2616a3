// cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt"): between all scalar types, with
// the four roundings to a float, the four to an integral value, saturation and .relu. To an integer
// it always clamps; NaN gives 0, or the lowest value (the highest bit) where either type has 64
// bits.
#include <algorithm>
#include <cmath>

#include "tests/fakes/cuda/ptx/decode.h"
#include "tests/fakes/cuda/ptx/float_format.h"
#include "tests/fakes/cuda/ptx/lanes.h"

namespace fakecuda {
namespace {

using Int = __int128;

constexpr uint32_t kRoundMask = 3;
constexpr uint32_t kIntegral = 4;  // rounds to an integral value first
constexpr uint32_t kSaturate = 8;
constexpr uint32_t kFtz = 16;
constexpr uint32_t kNoNegative = 32;

FloatFormat FormatOf(Type type) {
  switch (type) {
    case Type::kF16:
      return kF16Format;
    case Type::kBF16:
      return kBF16Format;
    case Type::kF32:
      return kF32Format;
    default:
      return kF64Format;
  }
}

Round RoundOf(uint32_t flags) { return static_cast<Round>(flags & kRoundMask); }

Int ReadInteger(Type type, uint64_t bits) {
  const int n = Bits(type);
  const uint64_t low = n == 64 ? bits : bits & ((uint64_t{1} << n) - 1);
  const bool negative = IsSigned(type) && (low >> (n - 1) & 1) != 0;
  return negative ? static_cast<Int>(low) - (static_cast<Int>(1) << n) : static_cast<Int>(low);
}

Int Lowest(Type type) { return IsSigned(type) ? -(static_cast<Int>(1) << (Bits(type) - 1)) : 0; }
Int Highest(Type type) {
  return (static_cast<Int>(1) << (Bits(type) - (IsSigned(type) ? 1 : 0))) - 1;
}

uint64_t FloatToInteger(double x, Type from, Type to, uint32_t flags) {
  if (std::isnan(x)) {
    return from == Type::kF64 || Bits(to) == 64 ? uint64_t{1} << (Bits(to) - 1) : 0;
  }
  const double integral = RoundToIntegral(x, RoundOf(flags));
  if (integral <= static_cast<double>(Lowest(to))) return static_cast<uint64_t>(Lowest(to));
  if (integral >= static_cast<double>(Highest(to))) return static_cast<uint64_t>(Highest(to));
  return static_cast<uint64_t>(static_cast<Int>(integral));
}

uint64_t FloatToFloat(double x, Type to, uint32_t flags) {
  if ((flags & kIntegral) != 0) x = RoundToIntegral(x, RoundOf(flags));
  if ((flags & kNoNegative) != 0 && !std::isnan(x) && std::signbit(x)) x = 0;
  if ((flags & kSaturate) != 0) x = std::isnan(x) || x <= 0 ? 0 : std::min(x, 1.0);
  const Round round = (flags & kIntegral) != 0 ? Round::kNearest : RoundOf(flags);
  const uint64_t bits = EncodeDouble(FormatOf(to), x, 0, round);
  if ((flags & kFtz) == 0 || to != Type::kF32 || (bits & 0x7f800000) != 0) return bits;
  return bits & 0x80000000;
}

uint64_t ConvertBits(uint64_t bits, Type from, Type to, uint32_t flags) {
  if (IsFloat(from)) {
    double x = DecodeFloat(FormatOf(from), bits);
    if ((flags & kFtz) != 0 && from == Type::kF32 && (bits & 0x7f800000) == 0) {
      x = std::copysign(0.0, x);
    }
    return IsFloat(to) ? FloatToFloat(x, to, flags) : FloatToInteger(x, from, to, flags);
  }
  const Int value = ReadInteger(from, bits);
  if (!IsFloat(to)) {
    if ((flags & kSaturate) == 0) return static_cast<uint64_t>(value);
    return static_cast<uint64_t>(std::clamp(value, Lowest(to), Highest(to)));
  }
  const auto magnitude = static_cast<uint64_t>(value < 0 ? -value : value);
  uint64_t result = Encode(FormatOf(to), value < 0, magnitude, 0, RoundOf(flags));
  if ((flags & kSaturate) != 0) {
    result = FloatToFloat(DecodeFloat(FormatOf(to), result), to, kSaturate);
  }
  return result;
}

// A result of `to`, extended as its sign says, in a register of `width` bits.
uint64_t Extended(uint64_t bits, Type to, int width) {
  if (IsFloat(to)) return bits;
  const uint64_t wide = static_cast<uint64_t>(ReadInteger(to, bits));
  return width == 64 ? wide : wide & ((uint64_t{1} << width) - 1);
}

// slot[2] holds the type to convert from, slot[3] the one to convert to.
void Convert(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const Type from = static_cast<Type>(i.slot[2]);
  const Type to = static_cast<Type>(i.slot[3]);
  Each(lanes, [&](int l) { d[l] = Extended(ConvertBits(a[l], from, to, i.flags), to, i.width); });
}

// d = {a, b}: two f32 to a pair of halves, a in the upper one.
void ConvertPair(Warp& w, const Instruction& i, uint32_t lanes) {
  uint64_t* d = w.Slot(i.slot[0]);
  const uint64_t* a = w.Slot(i.slot[1]);
  const uint64_t* b = w.Slot(i.slot[4]);
  const Type to = static_cast<Type>(i.slot[3]);
  Each(lanes, [&](int l) {
    d[l] = ConvertBits(a[l], Type::kF32, to, i.flags) << 16 |
           ConvertBits(b[l], Type::kF32, to, i.flags);
  });
}

// The frequent ones, by the host's own conversions.
template <class R, class A>
R Cast(A a) {
  return static_cast<R>(a);
}
float FromF16(uint16_t a) { return static_cast<float>(DecodeFloat(kF16Format, a)); }
float FromBF16(uint16_t a) { return std::bit_cast<float>(uint32_t{a} << 16); }

Execute Frequent(Type from, Type to, uint32_t flags, int width) {
  const auto is = [&](Type f, Type t) { return from == f && to == t; };
  if (flags != 0 || width != Bits(to)) return nullptr;  // nearest is 0
  if (is(Type::kU32, Type::kU64)) return &Lanes1<uint64_t, uint32_t, Cast<uint64_t, uint32_t>>;
  if (is(Type::kS32, Type::kS64)) return &Lanes1<int64_t, int32_t, Cast<int64_t, int32_t>>;
  if (is(Type::kU64, Type::kU32)) return &Lanes1<uint32_t, uint64_t, Cast<uint32_t, uint64_t>>;
  if (is(Type::kS32, Type::kF32)) return &Lanes1<float, int32_t, Cast<float, int32_t>>;
  if (is(Type::kU32, Type::kF32)) return &Lanes1<float, uint32_t, Cast<float, uint32_t>>;
  return nullptr;
}

// The rounding among the modifiers into `flags`; whether there is one.
bool TakeRounding(Decoder& d, uint32_t* flags) {
  const int integral = d.TakeOne({"rni", "rzi", "rmi", "rpi"});
  const int round = integral >= 0 ? integral : d.TakeOne({"rn", "rz", "rm", "rp"});
  if (integral >= 0) *flags |= kIntegral;
  if (round >= 0) *flags |= static_cast<uint32_t>(round);
  return round >= 0;
}

}  // namespace

bool DecodeConvert(Decoder& d) {
  if (d.mnemonic() != "cvt") return false;
  Instruction& o = d.out();
  uint32_t flags = 0;
  const bool rounded = TakeRounding(d, &flags);
  if (d.Take("sat")) flags |= kSaturate;
  if (d.Take("ftz")) flags |= kFtz;
  if (d.Take("relu")) flags |= kNoNegative;
  const Type to = d.TakeType();
  const Type from = d.TakeType();
  o.flags = flags;
  if (to == Type::kF16x2 || to == Type::kBF16x2) {
    d.ExpectOperands(3);
    d.Expect(from == Type::kF32 && rounded && (flags & kIntegral) == 0, "no such conversion");
    const Type half = to == Type::kF16x2 ? Type::kF16 : Type::kBF16;
    o.slot = {d.Destination(0, Type::kB32), d.Source(1, from), static_cast<uint32_t>(from),
              static_cast<uint32_t>(half), d.Source(2, from)};
    o.execute = &ConvertPair;
    return true;
  }
  d.ExpectOperands(2);
  d.Expect(Info(to).kind != 'b' && Info(from).kind != 'b' && from != Type::kF16x2 &&
               from != Type::kBF16x2 && from != Type::kPred && to != Type::kPred,
           "no conversion of this type");
  const bool narrows =
      IsFloat(to) && IsFloat(from) && (Bits(to) < Bits(from) || (Bits(to) == 16 && from != to));
  const bool needs = IsFloat(to) != IsFloat(from) || narrows;
  d.Expect(!needs || rounded, "a rounding is missing");
  d.Expect(IsFloat(to) || !IsFloat(from) || (flags & kIntegral) != 0,
           "a rounding to an integral value is missing");
  d.Expect(IsFloat(to) || IsFloat(from) || !rounded, "integers are not rounded");
  d.Expect((flags & kIntegral) == 0 || IsFloat(from), "a rounding of an integer");
  d.Expect((flags & kFtz) == 0 || from == Type::kF32 || to == Type::kF32, ".ftz without f32");
  o.slot[0] = d.Destination(0, to, !IsFloat(to));
  o.slot[1] = d.Source(1, from, !IsFloat(from));
  o.slot[2] = static_cast<uint32_t>(from);
  o.slot[3] = static_cast<uint32_t>(to);
  const int width = d.operands() > 0 ? d.RegisterBits(d.statement().operands[0]) : 0;
  o.width = static_cast<uint8_t>(width);
  o.execute = Frequent(from, to, flags, width);
  if (from == Type::kF16 && to == Type::kF32 && flags == 0) {
    o.execute = &Lanes1<float, uint16_t, FromF16>;
  }
  if (from == Type::kBF16 && to == Type::kF32 && flags == 0) {
    o.execute = &Lanes1<float, uint16_t, FromBF16>;
  }
  if (o.execute == nullptr) o.execute = &Convert;
  return true;
}

}  // namespace fakecuda
