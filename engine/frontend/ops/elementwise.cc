// Elementwise operations of Tensor that are one op, or few: arithmetic, bits, comparisons,
// selections, rounding. The IR wants equal shapes or scalars, so that NumPy's broadcasting is
// spelled out as RESHAPE and EXPAND (Unify).
#include <cmath>
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// What an op of numbers is on bools.
Op OfBool(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMax:
      return Op::kOr;
    case Op::kMul:
      return Op::kAnd;
    default:
      return op;
  }
}

Tensor Binary(std::string_view name, Op op, const Operand& a, const Operand& b) {
  const auto [x, y] = Unify(name, a, b);
  if (!x.valid() || !y.valid()) return x;
  return x.builder()->Make(IsBool(x.dtype()) ? OfBool(op) : op, DType::kVoid, {x, y});
}

// Of integers, and with `bools` of bool; bools without are i8, as NumPy has it.
Tensor Bits(std::string_view name, Op op, const Operand& a, const Operand& b, bool bools) {
  auto [x, y] = Unify(name, a, b);
  if (!x.valid() || !y.valid()) return x;
  if (IsFloat(x.dtype())) {
    return x.builder()->Fail(InvalidArgument(
        name, ": element type ", Name(x.dtype()), " of ", ToString(x.dims()), " and ",
        ToString(y.dims()), " is a float, expected integers", bools ? " or bool" : ""));
  }
  if (IsBool(x.dtype()) && !bools) x = x.Cast(DType::kInt8), y = y.Cast(DType::kInt8);
  return x.builder()->Make(op, DType::kVoid, {x, y});
}

Tensor Logical(std::string_view name, Op op, const Tensor& a, const Operand& b) {
  if (b.is_tensor()) return Binary(name, op, a.Cast(DType::kBool), b.tensor().Cast(DType::kBool));
  return Binary(name, op, a.Cast(DType::kBool), b.float_value() != 0);
}

}  // namespace

Tensor Tensor::Unary(Op op) const {
  return builder_ == nullptr ? Tensor() : builder_->Make(op, DType::kVoid, {*this});
}

Tensor Tensor::Like(double value) const {
  return valid() ? builder_->Const(dtype(), value) : Tensor();
}

Tensor Tensor::Contiguous() const { return Unary(Op::kContiguous); }
Tensor Tensor::Detach() const { return Unary(Op::kDetach); }

Tensor Tensor::Cast(DType to) const {
  if (!valid() || to == dtype()) return *this;
  return builder_->Make(Op::kCast, to, {*this});
}

Tensor Tensor::Bitcast(DType to) const {
  if (!valid() || to == dtype()) return *this;
  return builder_->Make(Op::kBitcast, to, {*this});
}

Tensor Tensor::Neg() const { return IsBool(dtype()) ? LogicalNot() : Unary(Op::kNeg); }
Tensor Tensor::Square() const { return *this * *this; }

// A product, whose gradient at 0 is 0, the middle of -1 and 1.
Tensor Tensor::Abs() const {
  if (!valid() || IsUnsigned(dtype()) || IsBool(dtype())) return *this;
  return IsFloat(dtype()) ? *this * Sign() : Maximum(Neg());
}

Tensor Tensor::Sign() const {
  if (!valid() || IsBool(dtype())) return *this;
  return Gt(0).Where(1, IsUnsigned(dtype()) ? Like(0) : Lt(0).Where(-1, Detach()));
}

Tensor Tensor::Floor() const { return IsFloat(dtype()) ? Unary(Op::kFloor) : *this; }
Tensor Tensor::Trunc() const { return IsFloat(dtype()) ? Unary(Op::kTrunc) : *this; }
Tensor Tensor::Ceil() const { return IsFloat(dtype()) ? -(-*this).Floor() : *this; }

// x - floor(x) is exact, but for x within -2^-p of an integer, where it rounds to 1 or 1/2 and the
// result is right all the same.
Tensor Tensor::Round() const {
  if (!IsFloat(dtype())) return *this;
  const Tensor low = Floor(), rest = *this - low, half = low * 0.5;
  const Tensor odd = half.Ne(half.Floor());
  return rest.Gt(0.5).Or(rest.Eq(0.5).And(odd)).Where(low + 1.0, low);
}

Tensor Tensor::IsNan() const {
  if (!valid() || IsFloat(dtype())) return Ne(*this);
  return builder_->Full(DType::kBool, dims(), false);
}

Tensor Tensor::IsInf(bool positive, bool negative) const {
  if (!valid()) return *this;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor none = builder_->Full(DType::kBool, dims(), false);
  if (!IsFloat(dtype()) || (!positive && !negative)) return none;
  if (!positive) return Eq(-kInf);
  return negative ? Eq(kInf).Or(Eq(-kInf)) : Eq(kInf);
}

// x - x is 0, but of infinities and NaN; formats without infinities have no constant for them.
Tensor Tensor::IsFinite() const {
  return IsFloat(dtype()) ? (*this - *this).Eq(0) : IsNan().LogicalNot();
}

Tensor Tensor::LogicalNot() const {
  return Binary("logical_not", Op::kXor, Cast(DType::kBool), true);
}

Tensor Tensor::BitwiseNot() const {
  if (!valid()) return *this;
  if (IsBool(dtype())) return LogicalNot();
  if (IsFloat(dtype())) {
    return builder_->Fail(InvalidArgument("bitwise_not: element type ", Name(dtype()), " of ",
                                          ToString(dims()),
                                          " is a float, expected integers or bool"));
  }
  return Xor(builder_->Const(dtype(), -1));
}

Tensor Tensor::Add(const Operand& other) const { return *this + other; }
Tensor Tensor::Sub(const Operand& other) const { return *this - other; }
Tensor Tensor::Mul(const Operand& other) const { return *this * other; }
Tensor Tensor::Maximum(const Operand& other) const {
  return Binary("maximum", Op::kMax, *this, other);
}

Tensor Tensor::Minimum(const Operand& other) const {
  const auto [a, b] = Unify("minimum", *this, other);
  if (!a.valid() || !b.valid()) return a;
  if (IsBool(a.dtype())) return a.And(b);
  // -max(-x, -y) keeps NaN; integers select, since -x wraps. -x before it is broadcast: what many
  // values share may be stored.
  if (IsFloat(a.dtype())) {
    const bool same = other.is_tensor() && other.tensor().dtype() == dtype();
    return (same ? Neg().Maximum(other.tensor().Neg()) : a.Neg().Maximum(b.Neg())).Neg();
  }
  return a.Lt(b).Where(a, b);
}

Tensor Tensor::And(const Operand& other) const { return *this & other; }
Tensor Tensor::Or(const Operand& other) const { return *this | other; }
Tensor Tensor::Xor(const Operand& other) const { return *this ^ other; }
Tensor Tensor::ShiftLeft(const Operand& bits) const { return *this << bits; }
Tensor Tensor::ShiftRight(const Operand& bits) const { return *this >> bits; }
Tensor Tensor::LogicalAnd(const Operand& other) const {
  return Logical("logical_and", Op::kAnd, *this, other);
}
Tensor Tensor::LogicalOr(const Operand& other) const {
  return Logical("logical_or", Op::kOr, *this, other);
}
Tensor Tensor::LogicalXor(const Operand& other) const {
  return Logical("logical_xor", Op::kXor, *this, other);
}

Tensor Tensor::Lt(const Operand& other) const { return Binary("lt", Op::kCmpLt, *this, other); }
Tensor Tensor::Gt(const Operand& other) const { return Binary("gt", Op::kCmpLt, other, *this); }
Tensor Tensor::Eq(const Operand& other) const { return Binary("eq", Op::kCmpEq, *this, other); }
Tensor Tensor::Ne(const Operand& other) const { return Binary("ne", Op::kCmpNe, *this, other); }

Tensor Tensor::Le(const Operand& other) const {
  const auto [a, b] = Unify("le", *this, other);
  if (!a.valid() || !b.valid()) return a;
  return IsFloat(a.dtype()) ? a.Lt(b).Or(a.Eq(b)) : a.Gt(b).Not();
}

Tensor Tensor::Ge(const Operand& other) const {
  const auto [a, b] = Unify("ge", *this, other);
  return a.valid() && b.valid() ? b.Le(a) : a;
}

// Equal values are close whatever they are: integers too wide for a float, infinities.
Tensor Tensor::IsClose(const Operand& other, double rtol, double atol, bool equal_nan) const {
  const auto [a, b] = Unify("isclose", *this, other);
  if (!a.valid() || !b.valid()) return a;
  const DType type = ComposedType(a.dtype());
  const Tensor x = a.Cast(type), y = b.Cast(type);
  const Tensor near = Magnitude(x - y).Le(Magnitude(y) * rtol + atol);
  const Tensor close = a.Eq(b).Or(near.And(y.IsFinite()));
  return equal_nan ? close.Or(a.IsNan().And(b.IsNan())) : close;
}

Tensor Tensor::CopySign(const Operand& sign) const {
  const auto [a, b] = Unify("copysign", *this, sign);
  if (!a.valid() || !b.valid()) return a;
  const DType type = FloatType(a.dtype());
  const Tensor x = a.Cast(type);
  return SignBit(x).Eq(SignBit(b.Cast(type))).Where(x, -x);
}

Tensor Tensor::Lerp(const Operand& end, const Operand& weight) const {
  return *this + weight * (end - *this);
}

// Bounds that an integer type cannot have do not bound it.
Tensor Tensor::Clamp(std::optional<double> low, std::optional<double> high) const {
  const auto whole = [](std::optional<double> x) { return !x || *x == std::floor(*x); };
  if (!IsInt(dtype()) || !whole(low) || !whole(high)) {
    const Tensor x = low ? Maximum(*low) : *this;
    return high ? x.Minimum(*high) : x;
  }
  const int bits = Info(dtype()).bits - IsSigned(dtype());
  const double top = std::ldexp(1.0, bits) - 1, bottom = IsSigned(dtype()) ? -top - 1 : 0;
  Tensor x = *this;
  if (low && *low > bottom) x = x.Maximum(Like(std::min(*low, top)));
  if (high && *high < top) x = x.Minimum(Like(std::max(*high, bottom)));
  return x;
}

Tensor Tensor::Clamp(const Tensor& low, const Tensor& high) const {
  return Maximum(low).Minimum(high);
}

Tensor Tensor::Where(const Operand& yes, const Operand& no) const {
  if (!valid()) return *this;
  Operand first = yes;
  if (!yes.is_tensor() && !no.is_tensor()) {
    const Operand::Kind kind = std::max(yes.kind(), no.kind());
    first = builder_->Const(kind == Operand::Kind::kBool  ? DType::kBool
                            : kind == Operand::Kind::kInt ? DType::kInt32
                                                          : DType::kFloat32,
                            yes);
  }
  const Pair pair = Unify("where", first, no);
  if (!pair.a.valid() || !pair.b.valid()) return pair.a;
  absl::StatusOr<Dims> out = Broadcast("where", pair.a.dims(), pair.b.dims());
  if (out.ok()) out = Broadcast("where", dims(), *out);
  if (!out.ok()) return builder_->Fail(out.status());
  const auto spread = [&](const Tensor& t) { return t.rank() == 0 ? t : t.Expand(*out); };
  return builder_->Make(Op::kWhere, DType::kVoid,
                        {spread(Cast(DType::kBool)), spread(pair.a), spread(pair.b)});
}

Tensor Tensor::MaskedFill(const Tensor& mask, const Operand& value) const {
  return mask.Where(value, *this);
}

Tensor operator+(const Operand& a, const Operand& b) { return Binary("add", Op::kAdd, a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return Binary("mul", Op::kMul, a, b); }

Tensor operator-(const Operand& a, const Operand& b) {
  const auto [x, y] = Unify("sub", a, b);
  if (!x.valid() || !y.valid()) return x;
  if (IsBool(x.dtype())) {
    return x.builder()->Fail(InvalidArgument("sub: bool ", ToString(x.dims()), " and ",
                                             ToString(y.dims()),
                                             " have no difference; ^ tells where they differ"));
  }
  return x.builder()->Make(Op::kSub, DType::kVoid, {x, y});
}

Tensor operator&(const Operand& a, const Operand& b) { return Bits("and", Op::kAnd, a, b, true); }
Tensor operator|(const Operand& a, const Operand& b) { return Bits("or", Op::kOr, a, b, true); }
Tensor operator^(const Operand& a, const Operand& b) { return Bits("xor", Op::kXor, a, b, true); }
Tensor operator<<(const Operand& a, const Operand& b) { return Bits("shl", Op::kShl, a, b, false); }
Tensor operator>>(const Operand& a, const Operand& b) { return Bits("shr", Op::kShr, a, b, false); }

}  // namespace telegrad
