// Exponentials, logarithms, hyperbolic functions and erf, composed of EXP2, LOG2, SQRT and
// arithmetic.
//
// Where a difference would cancel, near 0, a polynomial takes over (an interpolation at Chebyshev
// nodes, computed in 60 digits; its error is below that of rounding), so that results are within a
// few units of the last place of their own. A branch that is not taken gets an argument at which it
// is finite: the gradient of a Where is 0 there, but 0 times infinity is not.
//
// exp x is 2^(x log2 e), whose exponent rounds: relative to the value exp, sinh and cosh are up to
// 2 + |x| units away.
#include <cmath>
#include <limits>
#include <numbers>

#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

// (e^x - 1 - x) / x^2 on [-1/2, 1/2].
constexpr double kExpm1F32[] = {0.50000001216,   0.16666666802,   0.04166579123,
                                0.0083332361335, 0.0013982186046, 0.00019944874442};
constexpr double kExpm1F64[] = {0.5,
                                0.16666666666666667,
                                0.041666666666667062,
                                0.0083333333333333597,
                                0.0013888888888704549,
                                0.00019841269841146992,
                                2.4801587616145413e-5,
                                2.7557319433620243e-6,
                                2.7557076636642723e-7,
                                2.5051946709721621e-8,
                                2.0962955815976076e-9,
                                1.6116496514371546e-10};
// (tanh(x) / x - 1) / x^2 by x^2 on [0, 1/4].
constexpr double kTanhF32[] = {-0.33333311085, 0.13330476491, -0.053387110636, 0.017988744406};
constexpr double kTanhF64[] = {
    -0.33333333333333329,    0.13333333333329824,   -0.053968253963610086,  0.021869488297234514,
    -0.0088632292700678434,  0.0035920334653723928, -0.0014549593843804661, 0.00058496537290226446,
    -0.00022107222975864634, 5.9469565897747691e-5};
// (sinh(x) / x - 1) / x^2 by x^2 on [0, 1].
constexpr double kSinhF32[] = {0.16666675397, 0.0083317627337, 0.00020258884903};
constexpr double kSinhF64[] = {
    0.16666666666666667,   0.0083333333333333334,  0.00019841269841269773, 2.7557319224040339e-6,
    2.5052108364058041e-8, 1.6059048396350562e-10, 7.6466253616566577e-13, 2.8445264169895286e-15};
// erf(x) / x by x^2 on [0, 1].
constexpr double kErf[] = {1.1283791670955126,     -0.37612638903183752,   0.1128379167095512,
                           -0.026866170645129841,  0.0052239776254232983,  -0.00085483270219348296,
                           0.00012055332902888735, -1.4925647567519332e-5, 1.6462045441468419e-6,
                           -1.6364642158167615e-7, 1.4792401209404813e-8,  -1.216456005728345e-9,
                           8.7090451290531067e-11, -4.2309458242953378e-12};
// exp(x^2) (1 - erf(x)) by (x - 5/2) / (x + 5/2) for x in [1, 6].
constexpr double kErfcx[] = {0.21080636406114358,    -0.37173673394897335,   0.25171319321744931,
                             -0.12503305237882931,   0.039922539075584759,   -0.003993701165858238,
                             -0.0026423659642974032, 0.00087591545013376076, 0.00022838037890860081,
                             -0.0001288771713312957, -3.4182238133315231e-5, 1.8614457552080005e-5,
                             7.5525943231395023e-6,  -2.2981102519735955e-6, -1.8020038653448608e-6,
                             7.7733315974047853e-8,  3.4418924612955654e-7,  6.961191560229168e-8};
// x from which on 1 / x^2 is nothing beside 1, and whose square is finite.
constexpr double kLarge = 1e9;

Tensor ExpOf(const Tensor& x) { return (x * std::numbers::log2e).Exp2(); }
Tensor LogOf(const Tensor& x) { return x.Log2() * std::numbers::ln2; }

Tensor Expm1Of(const Tensor& x) {
  constexpr Coefficients kOf{kExpm1F32, kExpm1F64};
  const Tensor near = Magnitude(x).Lt(0.5), t = near.Where(x, 0);
  return near.Where(t + t * t * Polynomial(t, kOf.For(x)), ExpOf(x) - 1.0);
}

// log(1 + x) = log(u) + (x - (u - 1)) / u, where u is 1 + x rounded.
Tensor Log1pOf(const Tensor& x) {
  const Tensor u = x + 1.0;
  const Tensor finite = u.Lt(std::numeric_limits<double>::infinity());
  const Tensor lost = finite.Where(x - (u - 1.0), 0);
  return LogOf(u) + lost / u.Eq(0).Where(1, u);
}

// The odd function x + x^3 p(x^2), of a magnitude below `end`, else `far`.
template <typename F>
Tensor NearZero(const Tensor& x, double end, const Coefficients& p, F far) {
  const Tensor near = x.Lt(end), t = near.Where(x, 0), z = t * t;
  return near.Where(t + t * z * Polynomial(z, p.For(x)), far(x));
}

// An odd rational function, a least-maximum fit of the relative error on [0, 3.925], from where on
// erf is 1 in f32; it is 2e-8 off, the rest is f32's rounding. At 4.2 it has risen above 1, so that
// the last line makes exactly 1 of it and of all that comes after.
Tensor ErfF32(const Tensor& x) {
  constexpr double kEnd = 4.2;
  constexpr double kOver[] = {1.12837915,   0.190596285,   0.0527696297,
                              0.0037726553, 0.00028484526, 2.04600081e-06};
  constexpr double kUnder[] = {
      1, 0.50224429, 0.114183763, 0.0149834125, 0.00116388191, 3.80475874e-05};
  const Tensor t = x.Clamp(-kEnd, kEnd), z = t * t;
  return (t * Polynomial(z, kOver) / Polynomial(z, kUnder)).Clamp(-1, 1);
}

// erf(6) is 1 in f64.
Tensor ErfF64(const Tensor& x) {
  return Odd(x, [](const Tensor& a) {
    const Tensor near = a.Lt(1), t = near.Where(a, 0), far = near.Where(1, a.Minimum(6));
    const Tensor rest = ExpOf(-(far * far)) * Polynomial((far - 2.5) / (far + 2.5), kErfcx);
    return near.Where(t * Polynomial(t * t, kErf), 1.0 - rest);
  });
}

}  // namespace

Tensor Tensor::Exp2() const { return Cast(FloatType(dtype())).Unary(Op::kExp2); }
Tensor Tensor::Log2() const { return Cast(FloatType(dtype())).Unary(Op::kLog2); }
Tensor Tensor::Sqrt() const { return Cast(FloatType(dtype())).Unary(Op::kSqrt); }
Tensor Tensor::Reciprocal() const { return Cast(FloatType(dtype())).Unary(Op::kRecip); }
Tensor Tensor::Rsqrt() const {
  return Composed(*this, [](const Tensor& x) { return x.Sqrt().Reciprocal(); });
}

Tensor Tensor::Exp() const { return Composed(*this, ExpOf); }
Tensor Tensor::Expm1() const { return Composed(*this, Expm1Of); }
Tensor Tensor::Log() const { return Composed(*this, LogOf); }
Tensor Tensor::Log1p() const { return Composed(*this, Log1pOf); }
Tensor Tensor::Log10() const {
  return Composed(
      *this, [](const Tensor& x) { return x.Log2() * (std::numbers::ln2 / std::numbers::ln10); });
}

// Only an exponential that cannot overflow, and a denominator of at least 1.
Tensor Tensor::Sigmoid() const {
  return Composed(*this, [](const Tensor& x) {
    const Tensor negative = x.Lt(0), e = ExpOf(negative.Where(x, -x));
    const Tensor upper = (e + 1.0).Reciprocal();
    return negative.Where(e * upper, upper);
  });
}

Tensor Tensor::Tanh() const {
  return Composed(*this, [](const Tensor& x) {
    return Odd(x, [](const Tensor& a) {
      return NearZero(a, 0.5, {kTanhF32, kTanhF64}, [](const Tensor& y) {
        const Tensor e = ExpOf(y * -2.0);
        return (1.0 - e) / (1.0 + e);
      });
    });
  });
}

// The halved exponential twice: a result in range does not overflow on the way.
Tensor Tensor::Sinh() const {
  return Composed(*this, [](const Tensor& x) {
    return Odd(x, [](const Tensor& a) {
      return NearZero(a, 1, {kSinhF32, kSinhF64}, [](const Tensor& y) {
        const Tensor e = ExpOf(y * 0.5);
        return e * 0.5 * e - ExpOf(-y) * 0.5;
      });
    });
  });
}

Tensor Tensor::Cosh() const {
  return Composed(*this, [](const Tensor& x) {
    const Tensor a = x.Lt(0).Where(-x, x), e = ExpOf(a * 0.5);
    return e * 0.5 * e + ExpOf(-a) * 0.5;
  });
}

// log(x + sqrt(x^2 + 1)), of a large x log(2 x).
Tensor Tensor::Asinh() const {
  return Composed(*this, [](const Tensor& x) {
    return Odd(x, [](const Tensor& a) {
      const Tensor large = a.Gt(kLarge), t = large.Where(1, a), z = t * t;
      const Tensor small = Log1pOf(t + z / ((z + 1.0).Sqrt() + 1.0));
      return large.Where(LogOf(large.Where(a, 1)) + std::numbers::ln2, small);
    });
  });
}

// log(x + sqrt(x^2 - 1)) by t = x - 1, which is exact near 1.
Tensor Tensor::Acosh() const {
  return Composed(*this, [](const Tensor& x) {
    const Tensor large = x.Gt(kLarge), t = large.Where(1, x - 1.0);
    const Tensor small = Log1pOf(t + (t * (t + 2.0)).Sqrt());
    const Tensor inside = large.Where(LogOf(large.Where(x, 1)) + std::numbers::ln2, small);
    return x.Lt(1).Where(x.Like(std::numeric_limits<double>::quiet_NaN()), inside);
  });
}

Tensor Tensor::Atanh() const {
  return Composed(*this, [](const Tensor& x) {
    return Odd(x, [](const Tensor& a) { return Log1pOf(a * 2.0 / (1.0 - a)) * 0.5; });
  });
}

Tensor Tensor::Erf() const {
  return Composed(
      *this, [](const Tensor& x) { return x.dtype() == DType::kFloat64 ? ErfF64(x) : ErfF32(x); });
}

// max + log(1 + exp(min - max)); the difference of equal infinities is 0 here.
Tensor Tensor::LogAddExp(const Operand& other) const {
  return Composed("logaddexp", *this, other, [](const Tensor& a, const Tensor& b) {
    const Tensor swap = a.Lt(b), high = swap.Where(b, a), low = swap.Where(a, b);
    const Tensor same = high.Eq(low).And(high.IsInf());
    return high + Log1pOf(ExpOf(same.Where(0, low - high)));
  });
}

}  // namespace telegrad
