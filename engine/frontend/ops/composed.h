// What functions that are composed of several ops share.
#pragma once

#include <span>
#include <string_view>

#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// The type that a composed function of this type computes in: a float of at least 32 bits, so that
// of a narrower one the result alone is rounded.
DType ComposedType(DType type);

// f(x), in ComposedType; of x's type, or f32 if that is no float.
template <typename F>
Tensor Composed(const Tensor& x, F f) {
  if (!x.valid()) return x;
  return f(x.Cast(ComposedType(x.dtype()))).Cast(FloatType(x.dtype()));
}
// The same of two operands, which Unify makes equal first.
template <typename F>
Tensor Composed(std::string_view name, const Operand& a, const Operand& b, F f) {
  const auto [x, y] = Unify(name, a, b);
  if (!x.valid() || !y.valid()) return {};
  const DType inside = ComposedType(x.dtype());
  return f(x.Cast(inside), y.Cast(inside)).Cast(FloatType(x.dtype()));
}

// x y + z, rounded once on f32 and f64.
Tensor MulAcc(const Tensor& x, const Tensor& y, const Tensor& z);

// c[0] + c[1] t + c[2] t^2 + ..., each step rounded once on f32 and f64.
Tensor Polynomial(const Tensor& t, std::span<const double> c);

// Numbers of an approximation for each of the types that functions are computed in.
template <typename T>
struct Precisions {
  T f32, f64;
  const T& For(const Tensor& x) const { return x.dtype() == DType::kFloat64 ? f64 : f32; }
};
using Coefficients = Precisions<std::span<const double>>;

// x and -x of an odd function f, which sees no negative number.
template <typename F>
Tensor Odd(const Tensor& x, F f) {
  const Tensor negative = x.Lt(0);
  const Tensor y = f(negative.Where(-x, x));
  return negative.Where(-y, y);
}
// The sign bit of a float.
Tensor SignBit(const Tensor& x);
// |x|, whose gradient at 0 is that of x or -x, for comparisons and the like.
inline Tensor Magnitude(const Tensor& x) { return x.Maximum(-x); }

}  // namespace telegrad
