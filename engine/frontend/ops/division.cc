// Quotients, remainders and powers.
//
// The remainder of floats is exact (so is NumPy's), which a - trunc(a / b) b is not: the quotient
// may round up to the next integer, and the product rounds. Instead, a few leading bits of the
// quotient at a time are multiplied by either half of b, so that the products are exact, and then
// so are the differences.
#include "engine/base/status.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

Tensor Integers(Op op, Tensor a, Tensor b) {
  if (IsBool(a.dtype())) a = a.Cast(DType::kInt8), b = b.Cast(DType::kInt8);  // as NumPy does
  return a.builder()->Make(op, DType::kVoid, {a, b});
}

// The leading half of a float's significand: 12 bits of f32, 26 of f64. No gradient flows through
// it.
Tensor UpperHalf(const Tensor& x) {
  const bool wide = x.dtype() == DType::kFloat64;
  const Tensor bits = x.Bitcast(wide ? DType::kInt64 : DType::kInt32);
  return (bits & ~(wide ? int64_t{0x7ffffff} : int64_t{0xfff})).Bitcast(x.dtype());
}

// C's fmod, for quotients below 2^36 in f32 and 2^52 in f64. The gradient is that of
// a - trunc(a / b) b.
Tensor Remainder(const Tensor& a, const Tensor& b) {
  const int steps = a.dtype() == DType::kFloat64 ? 2 : 3;
  const Tensor upper = UpperHalf(b), lower = b - upper;
  Tensor rest = a;
  for (int i = 0; i < steps; ++i) {
    const Tensor quotient = UpperHalf((rest / b).Trunc());
    rest = (rest - quotient * upper) - quotient * lower;
  }
  // A quotient that rounded up left a rest of the other sign.
  const Tensor below = a.Lt(0), size = b.Lt(0).Where(-b, b);
  const Tensor over = rest.Ne(0).And(rest.Lt(0).Ne(below));
  rest = over.Where(below.Where(rest - size, rest + size), rest);
  return b.IsInf().And(a.IsFinite()).Where(a, rest);
}

// Whether a remainder has not the sign that its divisor has.
Tensor Opposed(const Tensor& rest, const Tensor& b) {
  return rest.Ne(0).And(rest.Lt(0).Ne(b.Lt(0)));
}

// Square and multiply, from the lowest bit of the exponent on.
Tensor IntegerPower(const Tensor& base, uint64_t exponent) {
  Tensor result = base.OnesLike(), square = base;
  for (uint64_t rest = exponent; rest != 0; rest >>= 1) {
    if (rest & 1) result = result * square;
    if (rest > 1) square = square * square;
  }
  return result;
}

// 1 / base^n without a remainder: 1 of 1, +-1 of -1, else 0.
Tensor NegativePower(const Tensor& base, const Tensor& odd) {
  const Tensor one = base.Eq(1).Where(base.Like(1), base.Like(0));
  if (IsUnsigned(base.dtype())) return one;
  return base.Eq(-1).Where(odd.Where(base, base.Like(1)), one);
}

Tensor IntegerPower(const Tensor& base, const Tensor& exponent) {
  const int bits = Info(exponent.dtype()).bits;
  Tensor result = base.OnesLike(), square = base;
  for (int i = 0; i + IsSigned(exponent.dtype()) < bits; ++i) {
    if (i > 0) square = square * square;
    result = ((exponent >> i) & 1).Ne(0).Where(result * square, result);
  }
  if (IsUnsigned(exponent.dtype())) return result;
  return exponent.Lt(0).Where(NegativePower(base, (exponent & 1).Ne(0)), result);
}

}  // namespace

Tensor operator/(const Operand& a, const Operand& b) {
  const auto [x, y] = Unify("div", a, b);
  if (!x.valid() || !y.valid()) return x;
  const DType type = FloatType(x.dtype());
  return x.builder()->Make(Op::kFDiv, DType::kVoid, {x.Cast(type), y.Cast(type)});
}

Tensor operator%(const Operand& a, const Operand& b) {
  const auto [x, y] = Unify("floor_mod", a, b);
  if (!x.valid() || !y.valid()) return x;
  if (!IsFloat(x.dtype())) return Integers(Op::kFloorMod, x, y);
  return Composed("floor_mod", x, y, [](const Tensor& p, const Tensor& q) {
    const Tensor rest = Remainder(p, q);
    return Opposed(rest, q).Where(rest + q, rest);
  });
}

Tensor Tensor::Div(const Operand& other, Rounding rounding) const {
  switch (rounding) {
    case Rounding::kNone:
      return *this / other;
    case Rounding::kTrunc:
      return TruncDiv(other);
    case Rounding::kFloor:
      return FloorDiv(other);
  }
  return {};
}

// (a - remainder) / b is an integer but for its rounding.
Tensor Tensor::FloorDiv(const Operand& other) const {
  const auto [a, b] = Unify("floor_div", *this, other);
  if (!a.valid() || !b.valid()) return a;
  if (!IsFloat(a.dtype())) return Integers(Op::kFloorDiv, a, b);
  return Composed("floor_div", a, b, [](const Tensor& p, const Tensor& q) {
    const Tensor rest = Remainder(p, q), whole = ((p - rest) / q).Round();
    return q.Eq(0).Where((p / q).Floor(), Opposed(rest, q).Where(whole - 1.0, whole));
  });
}

Tensor Tensor::TruncDiv(const Operand& other) const {
  const auto [a, b] = Unify("trunc_div", *this, other);
  if (!a.valid() || !b.valid()) return a;
  if (IsFloat(a.dtype())) return (a / b).Trunc();
  return Integers(Op::kCDiv, a, b);
}

Tensor Tensor::FloorMod(const Operand& divisor) const { return *this % divisor; }

Tensor Tensor::TruncMod(const Operand& divisor) const {
  const auto [a, b] = Unify("trunc_mod", *this, divisor);
  if (!a.valid() || !b.valid()) return a;
  if (!IsFloat(a.dtype())) return Integers(Op::kCMod, a, b);
  return Composed("trunc_mod", a, b, Remainder);
}

// Exponents that products and roots spell are those, also in the gradient.
Tensor Tensor::Pow(const Operand& exponent) const {
  if (!valid()) return *this;
  const bool whole = exponent.kind() == Operand::Kind::kInt;
  if (whole && IsInt(dtype())) {
    const int64_t n = exponent.int_value();
    if (n >= 0 || exponent.float_value() > 0) return IntegerPower(*this, static_cast<uint64_t>(n));
    return NegativePower(*this, builder_->Const(DType::kBool, n % 2 != 0));
  }
  if (IsFloat(dtype()) && !exponent.is_tensor()) {
    const double n = exponent.float_value();
    if (n == 1) return *this;
    if (n == 2) return *this * *this;
    if (n == 3) return *this * *this * *this;
    if (n == 0.5) return Sqrt();
    if (n == -1) return Reciprocal();
  }
  auto [a, b] = Unify("pow", *this, exponent);
  if (!a.valid() || !b.valid()) return a;
  if (IsFloat(a.dtype())) return builder_->Make(Op::kPow, DType::kVoid, {a, b});
  if (IsBool(a.dtype())) a = a.Cast(DType::kInt8), b = b.Cast(DType::kInt8);
  return IntegerPower(a, b);
}

}  // namespace telegrad
