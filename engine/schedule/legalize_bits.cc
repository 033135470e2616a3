#include "engine/schedule/legalize_bits.h"

#include <bit>

#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

int Bits(DType dtype) { return Info(dtype).bits; }

// The unsigned type that holds `bits` bits.
DType Unsigned(int bits) {
  if (bits <= 8) return DType::kUInt8;
  return bits == 16 ? DType::kUInt16 : bits == 32 ? DType::kUInt32 : DType::kUInt64;
}

UOp Cast(Graph* g, UOp x, DType to) {
  if (!x.valid() || x.dtype() == to) return x;
  return g->Make(Op::kCast, to, {x});
}

UOp Bitcast(Graph* g, UOp x, DType to) {
  if (!x.valid() || x.dtype() == to) return x;
  return g->Make(Op::kBitcast, to, {x});
}

// `op` with a constant on the right.
UOp With(Graph* g, Op op, UOp x, int64_t c) {
  if (!x.valid()) return x;
  return g->Make(op, {x, g->Const(x.dtype(), c)});
}

UOp Reshape(Graph* g, UOp x, ShapeView dims) { return g->Make(Op::kReshape, {x}, dims); }

UOp Lower(Graph* g, UOp x, int bits) {
  return bits < 8 ? With(g, Op::kAnd, x, (int64_t{1} << bits) - 1) : x;
}

// The value of codes, in a type that holds all of them.
UOp Decode(Graph* g, UOp codes, DType packed) {
  if (IsUnsigned(packed)) return codes;
  if (IsSigned(packed)) {  // sign extension: flip the sign bit, take it off
    const int64_t sign = int64_t{1} << (Bits(packed) - 1);
    return With(g, Op::kSub, Cast(g, With(g, Op::kXor, codes, sign), DType::kInt8), sign);
  }
  // f4e2m1, in halves: codes 0 and 1 are themselves, then (2 + mantissa) << (exponent - 1).
  const UOp magnitude = With(g, Op::kAnd, codes, 7);
  const UOp leading = With(g, Op::kAdd, With(g, Op::kAnd, codes, 1), 2);
  const UOp shift = With(g, Op::kSub, With(g, Op::kShr, magnitude, 1), 1);
  const UOp normal = g->Make(Op::kShl, {leading, shift});
  const UOp halves = g->Make(Op::kWhere, {With(g, Op::kCmpLt, magnitude, 2), magnitude, normal});
  const UOp value =
      g->Make(Op::kMul, {Cast(g, halves, DType::kFloat32), g->ConstFloat(DType::kFloat32, 0.5)});
  const UOp negative = With(g, Op::kCmpNe, With(g, Op::kAnd, codes, 8), 0);
  return g->Make(Op::kWhere, {negative, g->Make(Op::kNeg, {value}), value});
}

// f32 or f64 to f4e2m1: a code is the number of midpoints below it; a tie goes to the even code.
// NaN gives -0.
UOp EncodeFloat4(Graph* g, UOp x) {
  constexpr double kMidpoints[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  const DType dtype = x.dtype();
  const UOp negative = g->Make(Op::kCmpLt, {x, g->ConstFloat(dtype, 0)});
  const UOp magnitude = g->Make(Op::kWhere, {negative, g->Make(Op::kNeg, {x}), x});
  UOp code = g->Const(DType::kUInt8, 0);
  bool upper_is_even = false;
  for (const double middle : kMidpoints) {
    const UOp c = g->ConstFloat(dtype, middle);
    const UOp one = g->Const(DType::kUInt8, 1), zero = g->Const(DType::kUInt8, 0);
    const UOp step = upper_is_even
                         ? g->Make(Op::kWhere, {g->Make(Op::kCmpLt, {magnitude, c}), zero, one})
                         : g->Make(Op::kWhere, {g->Make(Op::kCmpLt, {c, magnitude}), one, zero});
    code = g->Make(Op::kAdd, {code, step});
    upper_is_even = !upper_is_even;
  }
  const UOp bits = Bitcast(g, x, Unsigned(Bits(dtype)));
  const UOp sign = Cast(g, With(g, Op::kShr, bits, Bits(dtype) - 1), DType::kUInt8);
  code = g->Make(Op::kOr, {code, With(g, Op::kShl, sign, 3)});
  return g->Make(Op::kWhere, {g->Make(Op::kCmpNe, {x, x}), g->Const(DType::kUInt8, 8), code});
}

UOp Encode(Graph* g, UOp x, DType packed) {
  if (IsFloat(packed)) {
    return EncodeFloat4(g, x.dtype() == DType::kFloat64 ? x : Cast(g, x, DType::kFloat32));
  }
  if (IsFloat(x.dtype())) {  // saturates
    const bool is_signed = IsSigned(packed);
    const int64_t high = (int64_t{1} << (Bits(packed) - (is_signed ? 1 : 0))) - 1;
    const int64_t low = is_signed ? -high - 1 : 0;
    const UOp i = With(g, Op::kMax, Cast(g, x, DType::kInt32), low);
    const UOp top = g->Const(DType::kInt32, high);
    x = g->Make(Op::kWhere, {g->Make(Op::kCmpLt, {i, top}), i, top});
  }
  return Lower(g, Cast(g, x, DType::kUInt8), Bits(packed));
}

// Each of n words becomes `parts` words next to each other, the lowest bits first.
UOp SplitWords(Graph* g, UOp flat, int64_t parts, int bits) {
  const int64_t n = NumElements(flat.shape());
  const DType word = flat.dtype();
  const UOp wide = g->Make(Op::kExpand, {Reshape(g, flat, Shape{n, 1})}, Shape{n, parts});
  UOp shift = With(g, Op::kMul, g->Make(Op::kIota, word, {}, {parts}), bits);
  shift = g->Make(Op::kExpand, {Reshape(g, shift, Shape{1, parts})}, Shape{n, parts});
  const UOp part = Cast(g, g->Make(Op::kShr, {wide, shift}), Unsigned(bits));
  return Reshape(g, Lower(g, part, bits), Shape{n * parts});
}

// The inverse: `parts` words of `bits` bits become one of type `word`.
UOp JoinWords(Graph* g, UOp flat, int64_t parts, int bits, DType word) {
  const int64_t n = NumElements(flat.shape()) / parts;
  const UOp rows = Reshape(g, flat, Shape{n, parts});
  UOp out;
  for (int64_t i = 0; i < parts; ++i) {
    const UOp column = g->Make(Op::kShrink, {rows}, Shape{0, n, i, 1});
    UOp part = Cast(g, Reshape(g, column, Shape{n}), word);
    if (i > 0) part = With(g, Op::kShl, part, i * bits);
    out = i == 0 ? part : g->Make(Op::kOr, {out, part});
  }
  return out;
}

}  // namespace

UOp CarriedConst(Graph* g, DType dtype, int64_t word) {
  if (!IsPacked(dtype)) return g->ConstWord(dtype, word);
  const int64_t mask = (int64_t{1} << Bits(dtype)) - 1;
  return g->Const(DType::kUInt8, ScalarToMemory(dtype, word) & mask);
}

UOp CarriedCast(Graph* g, UOp x, DType from, DType to) {
  if (from == to) return x;
  if (IsPacked(from)) x = Decode(g, x, from);
  return IsPacked(to) ? Encode(g, x, to) : Cast(g, x, to);
}

UOp CarriedBitcast(Graph* g, UOp x, DType from, DType to) {
  const int from_bits = Bits(from), to_bits = Bits(to);
  if (from_bits == to_bits) return Bitcast(g, x, Carrier(to));
  Shape dims(x.shape().begin(), x.shape().end());
  dims.back() = dims.back() * from_bits / to_bits;
  const DType word = Unsigned(from_bits);
  // Flat: the rank may be at its limit already.
  const UOp flat = Reshape(g, Bitcast(g, x, word), Shape{NumElements(x.shape())});
  const UOp words = to_bits < from_bits
                        ? SplitWords(g, flat, from_bits / to_bits, to_bits)
                        : JoinWords(g, flat, to_bits / from_bits, from_bits, Unsigned(to_bits));
  return Bitcast(g, Reshape(g, words, dims), Carrier(to));
}

UOp UnpackCodes(Graph* g, DType packed, UOp bytes, ShapeView dims) {
  const UOp codes = CarriedBitcast(g, bytes, DType::kUInt8, packed);
  const UOp used = g->Make(Op::kShrink, {codes}, Shape{0, NumElements(dims)});
  return Reshape(g, used, dims);
}

UOp PackCodes(Graph* g, DType packed, UOp codes) {
  const int64_t n = NumElements(codes.shape());
  const int64_t whole = BytesOf(packed, n) * 8 / Bits(packed);
  const UOp flat = Reshape(g, codes, Shape{n});
  return CarriedBitcast(g, g->Make(Op::kPad, {flat}, Shape{0, whole}), packed, DType::kUInt8);
}

}  // namespace telegrad
