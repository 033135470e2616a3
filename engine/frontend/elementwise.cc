// Elementwise operations of Tensor. The IR wants equal shapes or scalars, so that NumPy's
// broadcasting is spelled out here as RESHAPE and EXPAND.
#include <cmath>
#include <numbers>
#include <span>
#include <utility>

#include "engine/base/status.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/shapes.h"

namespace telegrad {
namespace {

// `t` as an operand of an operation on `shape`: scalars broadcast by themselves.
Tensor Spread(const Tensor& t, const Shape& shape) { return t.rank() == 0 ? t : t.Expand(shape); }

Tensor Binary(std::string_view name, Op op, const Tensor& a, const Tensor& b) {
  Builder* builder = a.builder() != nullptr ? a.builder() : b.builder();
  if (builder == nullptr) return {};
  if (!a.valid() || !b.valid()) {
    return builder->Fail(InvalidArgument(name, ": an operand is an empty tensor"));
  }
  if (a.dtype() != b.dtype()) {
    return builder->Fail(InvalidArgument(name, ": element types ", Name(a.dtype()), " ",
                                         ToString(a.shape()), " and ", Name(b.dtype()), " ",
                                         ToString(b.shape()), " differ; cast one"));
  }
  absl::StatusOr<Shape> shape = BroadcastShapes(name, a.shape(), b.shape());
  if (!shape.ok()) return builder->Fail(shape.status());
  return builder->Make(op, DType::kVoid, {Spread(a, *shape), Spread(b, *shape)});
}

// c[0] + c[1] t + c[2] t^2 + ...
Tensor Polynomial(const Tensor& t, std::span<const double> c) {
  Tensor sum = t.Like(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) sum = sum * t + c[i];
  return sum;
}

}  // namespace

Tensor Tensor::Unary(Op op) const {
  return builder_ == nullptr ? Tensor() : builder_->Make(op, DType::kVoid, {*this});
}

Tensor Tensor::Like(double value) const {
  return valid() ? builder_->Const(dtype(), value) : Tensor();
}

Tensor Tensor::Neg() const { return Unary(Op::kNeg); }
Tensor Tensor::Exp2() const { return Unary(Op::kExp2); }
Tensor Tensor::Log2() const { return Unary(Op::kLog2); }
Tensor Tensor::Sqrt() const { return Unary(Op::kSqrt); }
Tensor Tensor::Reciprocal() const { return Unary(Op::kRecip); }
Tensor Tensor::Floor() const { return Unary(Op::kFloor); }
Tensor Tensor::Trunc() const { return Unary(Op::kTrunc); }
Tensor Tensor::Contiguous() const { return Unary(Op::kContiguous); }
Tensor Tensor::Detach() const { return Unary(Op::kDetach); }
Tensor Tensor::Exp() const { return (*this * std::numbers::log2e).Exp2(); }
Tensor Tensor::Log() const { return Log2() * std::numbers::ln2; }
Tensor Tensor::Abs() const { return Maximum(Neg()); }
Tensor Tensor::Relu() const { return Maximum(Like(0)); }
Tensor Tensor::Sigmoid() const { return (1.0 + Neg().Exp()).Reciprocal(); }
// tanh x = 2 sigmoid(2 x) - 1: saturates at both ends without inf / inf.
Tensor Tensor::Tanh() const { return 2.0 * (*this * 2.0).Sigmoid() - 1.0; }

// An odd rational function, a least-maximum fit of the relative error on [0, 3.925], from where on
// erf is 1 in f32; it is 2e-8 off, the rest is f32's rounding. At 4.2 it has risen above 1, so that
// the last line makes exactly 1 of it and of all that comes after.
Tensor Tensor::Erf() const {
  constexpr double kEnd = 4.2;
  constexpr double kOver[] = {1.12837915,   0.190596285,   0.0527696297,
                              0.0037726553, 0.00028484526, 2.04600081e-06};
  constexpr double kUnder[] = {
      1, 0.50224429, 0.114183763, 0.0149834125, 0.00116388191, 3.80475874e-05};
  const Tensor x = Maximum(Like(-kEnd)).Minimum(Like(kEnd));
  const Tensor t = x * x;
  const Tensor y = x * Polynomial(t, kOver) / Polynomial(t, kUnder);
  return y.Maximum(Like(-1)).Minimum(Like(1));
}

Tensor Tensor::Gelu() const {
  return *this * 0.5 * (1.0 + (*this * (1 / std::numbers::sqrt2)).Erf());
}

Tensor Tensor::GeluTanh() const {
  const Tensor inner = *this + 0.044715 * (*this * *this * *this);
  return *this * 0.5 * (1.0 + (inner * std::sqrt(2 / std::numbers::pi)).Tanh());
}

Tensor Tensor::Not() const {
  return Binary("not", Op::kXor, *this, valid() ? builder_->Const(DType::kBool, 1) : Tensor());
}

Tensor Tensor::Cast(DType to) const {
  if (builder_ == nullptr || to == dtype()) return *this;
  return builder_->Make(Op::kCast, to, {*this});
}

Tensor Tensor::Maximum(const Tensor& other) const {
  return Binary("maximum", Op::kMax, *this, other);
}

Tensor Tensor::Minimum(const Tensor& other) const {
  // -max(-x, -y) keeps NaN; integers select, since -x wraps.
  if (IsFloat(dtype())) return Binary("minimum", Op::kMax, Neg(), other.Neg()).Neg();
  return Binary("minimum", Op::kCmpLt, *this, other).Where(*this, other);
}

Tensor Tensor::Pow(const Tensor& exponent) const {
  return Binary("pow", Op::kPow, *this, exponent);
}
Tensor Tensor::FloorMod(const Tensor& divisor) const {
  return Binary("floor_mod", Op::kFloorMod, *this, divisor);
}
Tensor Tensor::TruncMod(const Tensor& divisor) const {
  return Binary("trunc_mod", Op::kCMod, *this, divisor);
}

Tensor Tensor::And(const Tensor& other) const { return Binary("and", Op::kAnd, *this, other); }
Tensor Tensor::Or(const Tensor& other) const { return Binary("or", Op::kOr, *this, other); }
Tensor Tensor::Xor(const Tensor& other) const { return Binary("xor", Op::kXor, *this, other); }
Tensor Tensor::Lt(const Tensor& other) const { return Binary("lt", Op::kCmpLt, *this, other); }
Tensor Tensor::Gt(const Tensor& other) const { return Binary("gt", Op::kCmpLt, other, *this); }
Tensor Tensor::Eq(const Tensor& other) const { return Binary("eq", Op::kCmpEq, *this, other); }
Tensor Tensor::Ne(const Tensor& other) const { return Binary("ne", Op::kCmpNe, *this, other); }
Tensor Tensor::Le(const Tensor& other) const {
  return IsFloat(dtype()) ? Lt(other).Or(Eq(other)) : Gt(other).Not();
}
Tensor Tensor::Ge(const Tensor& other) const { return other.Le(*this); }

Tensor Tensor::Where(const Tensor& yes, const Tensor& no) const {
  if (builder_ == nullptr) return {};
  if (!valid() || !yes.valid() || !no.valid()) {
    return builder_->Fail(InvalidArgument("where: an operand is an empty tensor"));
  }
  absl::StatusOr<Shape> out = BroadcastShapes("where", yes.shape(), no.shape());
  if (out.ok()) out = BroadcastShapes("where", shape(), *out);
  if (!out.ok()) return builder_->Fail(out.status());
  return builder_->Make(Op::kWhere, DType::kVoid,
                        {Spread(*this, *out), Spread(yes, *out), Spread(no, *out)});
}

Tensor operator+(const Tensor& a, const Tensor& b) { return Binary("add", Op::kAdd, a, b); }
Tensor operator-(const Tensor& a, const Tensor& b) { return Binary("sub", Op::kSub, a, b); }
Tensor operator*(const Tensor& a, const Tensor& b) { return Binary("mul", Op::kMul, a, b); }
Tensor operator/(const Tensor& a, const Tensor& b) {
  return Binary("div", IsInt(a.dtype()) ? Op::kFloorDiv : Op::kFDiv, a, b);
}

}  // namespace telegrad
