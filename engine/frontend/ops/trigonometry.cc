// Trigonometric functions and their inverses, composed of SIN, SQRT and arithmetic.
//
// cos x = +-sin w, where w = x - m pi/2 for the odd m next to x. The product is subtracted in parts
// of pi/2 so short that m times each is exact (Cody and Waite, "Software Manual for the Elementary
// Functions", 1980), so that zeros of cos keep their precision: up to kEnd the result is within 4
// units of its own last place, f32 in 6000, f64 in 1e8. Beyond that it is 1 - 2 sin^2(x/2), within
// 5 units of the last place of 1 for every x. Either way there is one SIN, and derivatives are cos
// and sin again.
//
// atan t is a polynomial (an interpolation at Chebyshev nodes, computed in 60 digits) on
// [0, tan pi/8], pi/4 + atan((t - 1) / (t + 1)) up to tan 3 pi/8, and pi/2 - atan(1 / t) above. The
// other inverses are arc tangents of quotients without cancellation, within 5 units.
#include <limits>
#include <numbers>

#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

// pi/2 in parts of 12 and 27 bits, the last with all bits.
constexpr double kHalfPiF32[] = {0x1.92p+0, 0x1.fb4p-12, 0x1.444p-24, 0x1.68c234c4c6629p-39};
constexpr double kHalfPiF64[] = {0x1.921fb54p+0, 0x1.10b461p-30, 0x1.a62633p-58,
                                 0x1.45c06e0e68948p-86};
// Up to which |x| the number of half turns has as many bits as those parts leave.
constexpr Precisions<double> kEnd{6000, 1e8};

// (atan(t) / t - 1) / t^2 by t^2 for t in [0, tan pi/8].
constexpr double kAtanF32[] = {-0.33333331761, 0.19999540484, -0.14263955598, 0.10743731491,
                               -0.064519282081};
constexpr double kAtanF64[] = {-0.33333333333333333,  0.19999999999999805,   -0.14285714285659828,
                               0.11111111105155447,   -0.090909087535008768, 0.076922963750321424,
                               -0.066664248857382553, 0.058789289978347751,  -0.052304542706502445,
                               0.045515932206265492,  -0.034570561981427747, 0.016285756855221028};
constexpr double kTanPi8 = std::numbers::sqrt2 - 1, kTan3Pi8 = std::numbers::sqrt2 + 1;
// pi/4 as the nearest number and the rest.
constexpr Precisions<double> kQuarterPi{0x1.921fb6p-1, 0x1.921fb54442d18p-1};
constexpr Precisions<double> kQuarterPiRest{-0x1.777a5cf72cecep-26, 0x1.1a62633145c07p-55};

Tensor CosOf(const Tensor& x) {
  constexpr Coefficients kParts{kHalfPiF32, kHalfPiF64};
  const Tensor near = Magnitude(x).Lt(kEnd.For(x));
  const Tensor turns = (x * std::numbers::inv_pi + 1.0).Floor(), odd = turns * 2.0 - 1.0;
  Tensor w = x;
  for (double part : kParts.For(x)) w = w - odd * part;
  const Tensor half = turns * 0.5, sign = 1.0 - (half - half.Floor()) * 4.0;
  const Tensor s = near.Where(w, x * 0.5).Sin();
  return near.Where(sign * s, 1.0 - s * s * 2.0);
}

// Of t >= 0.
Tensor AtanOf(const Tensor& t) {
  constexpr Coefficients kOf{kAtanF32, kAtanF64};
  const Tensor high = t.Gt(kTan3Pi8), middle = t.Gt(kTanPi8);
  const Tensor over = high.Where(-1, middle.Where(t - 1.0, t));
  const Tensor under = high.Where(t, middle.Where(t + 1.0, t.Like(1)));
  const Tensor r = over / under, z = r * r;
  const Tensor quarters = high.Where(t.Like(2), middle.Where(t.Like(1), t.Like(0)));
  const Tensor rest = r * z * Polynomial(z, kOf.For(t)) + quarters * kQuarterPiRest.For(t);
  return quarters * kQuarterPi.For(t) + (r + rest);
}

// The larger magnitude of two numbers and the quotient of the magnitudes, at most 1, 0 of two zeros
// and 1 of two infinities.
struct Ratio {
  Tensor swap, large, quotient;  // swap: the second is larger
  Ratio(const Tensor& a, const Tensor& b) {
    const Tensor x = SignBit(a).Where(-a, a), y = SignBit(b).Where(-b, b);
    swap = x.Lt(y);
    large = swap.Where(y, x);
    const Tensor both = x.Eq(y).And(x.IsInf()), none = large.Eq(0);
    quotient = both.Where(1, swap.Where(x, y)) / none.Or(both).Where(1, large);
  }
};

}  // namespace

Tensor Tensor::Sin() const { return Cast(FloatType(dtype())).Unary(Op::kSin); }
Tensor Tensor::Cos() const { return Composed(*this, CosOf); }
Tensor Tensor::Tan() const {
  return Composed(*this, [](const Tensor& x) { return x.Sin() / CosOf(x); });
}

Tensor Tensor::Atan() const {
  return Composed(*this, [](const Tensor& x) { return Odd(x, AtanOf); });
}

Tensor Tensor::Asin() const {
  return Composed(*this, [](const Tensor& x) {
    return Odd(x, [](const Tensor& a) {
      return AtanOf(a / (((1.0 - a) * (1.0 + a)).Sqrt() + 1.0)) * 2.0;
    });
  });
}

Tensor Tensor::Acos() const {
  return Composed(*this,
                  [](const Tensor& x) { return AtanOf(((1.0 - x) / (1.0 + x)).Sqrt()) * 2.0; });
}

Tensor Tensor::Atan2(const Operand& x) const {
  return Composed("atan2", *this, x, [](const Tensor& v, const Tensor& u) {
    const Ratio ratio(u, v);
    const Tensor first = AtanOf(ratio.quotient);  // of the first octant
    const Tensor upper = ratio.swap.Where(std::numbers::pi / 2 - first, first);
    return SignBit(u).Where(std::numbers::pi - upper, upper).CopySign(v);
  });
}

Tensor Tensor::Hypot(const Operand& other) const {
  return Composed("hypot", *this, other, [](const Tensor& a, const Tensor& b) {
    const Ratio ratio(a, b);
    const Tensor infinite = a.IsInf().Or(b.IsInf());
    const Tensor length = ratio.large * (ratio.quotient * ratio.quotient + 1.0).Sqrt();
    return infinite.Where(std::numeric_limits<double>::infinity(), length);
  });
}

}  // namespace telegrad
