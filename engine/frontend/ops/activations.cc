// Activations. Branches that are not taken get arguments at which they are finite, see
// functions.cc.
#include <cmath>
#include <numbers>

#include "engine/base/status.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// (1 - Phi(x)) e^(x^2 / 2) (x + m), Phi the normal distribution's probability to be below x, by
// (x - m) / (x + m). Of f32 with m = 3 a least-maximum fit for x from 0 to 14.4, from where on the
// exponential is 0; its error is 6e-9 of the value times 1 + x^2 / 4, as the exponent's rounding.
// Of f64 with m = 7/2 an interpolation at Chebyshev nodes from 0 to infinity, computed in 40
// digits, whose error is 5e-17.
constexpr double kMiddleF32 = 3, kMiddleF64 = 3.5;
constexpr double kTailF32[] = {0.72908367837574,  -0.50933191982719, 0.2300189059537,
                               -0.04726304845533, -0.01047906452683, 0.00695637174922,
                               0.00108857155663,  -0.00094643918099, -0.00029711857867};
constexpr double kTailF64[] = {
    0.74441607543593813,    -0.56556181605377833,  0.31542496988795307,    -0.11605092871414682,
    0.017407832602008851,   0.0064762189219883623, -0.0031891010472258988, -0.00044501298037938891,
    0.00047665708620806891, 6.7033474680870454e-5, -7.558452919877664e-5,  -1.8790094792314144e-5,
    1.1505959615831742e-5,  5.6557367373693482e-6, -1.1627943254320324e-6, -1.4872406600413694e-6,
    -1.4810458011888594e-7, 3.0562105819475497e-7, 1.3098115659989562e-7,  -3.9980253516064631e-8,
    -4.2802070023096725e-8, 1.1235481633309484e-9, 8.3079355186180236e-9,  3.8671380954793441e-10,
    -7.8269948288212805e-10};

// 1 - Phi(x) of x from 0 to infinity. The exponent rounds: relative to the value, the result is up
// to 4 + x^2 units away.
Tensor UpperTail(const Tensor& x) {
  constexpr Coefficients kOf{kTailF32, kTailF64};
  const double middle = x.dtype() == DType::kFloat64 ? kMiddleF64 : kMiddleF32;
  const Tensor s = (x + middle).Reciprocal(), t = MulAcc(s, s.Like(-2 * middle), s.Like(1));
  return (x * x * (-0.5 * std::numbers::log2e)).Exp2() * (s * Polynomial(t, kOf.For(x)));
}

Tensor SoftplusOf(const Tensor& x) { return x.LogAddExp(0); }

// x above 0, alpha (e^(x / width) - 1) below.
Tensor ExponentialUnit(const Tensor& x, double alpha, double width) {
  const Tensor negative = x.Lt(0);
  const Tensor below = negative.Where(x, 0);
  return negative.Where((width == 1 ? below : below / width).Expm1() * alpha, x);
}

}  // namespace

Tensor Tensor::Relu() const { return Maximum(0); }
Tensor Tensor::Relu6() const { return Clamp(0, 6); }

Tensor Tensor::LogSigmoid() const {
  return Composed(*this, [](const Tensor& x) { return -SoftplusOf(-x); });
}

Tensor Tensor::HardSigmoid(double alpha, double beta) const {
  return Composed(*this, [&](const Tensor& x) { return (x * alpha + beta).Clamp(0, 1); });
}

Tensor Tensor::HardSwish() const {
  return Composed(*this, [](const Tensor& x) { return x * ((x + 3.0).Relu6() * (1.0 / 6)); });
}

Tensor Tensor::HardTanh(double low, double high) const { return Clamp(low, high); }

Tensor Tensor::LeakyRelu(double slope) const { return Lt(0).Where(*this * slope, *this); }
Tensor Tensor::PRelu(const Tensor& slope) const { return Lt(0).Where(*this * slope, *this); }

Tensor Tensor::Elu(double alpha) const {
  return Composed(*this, [&](const Tensor& x) { return ExponentialUnit(x, alpha, 1); });
}

Tensor Tensor::Celu(double alpha) const {
  return Composed(*this, [&](const Tensor& x) { return ExponentialUnit(x, alpha, alpha); });
}

// The fixed point of mean 0 and variance 1 (Klambauer et al. 2017).
Tensor Tensor::Selu() const {
  constexpr double kAlpha = 1.6732632423543772, kScale = 1.0507009873554805;
  return Composed(*this, [](const Tensor& x) { return ExponentialUnit(x, kAlpha, 1) * kScale; });
}

// Not by erf: where x is negative, 1 + erf cancels.
Tensor Tensor::Gelu() const {
  return Composed(*this, [](const Tensor& x) {
    const Tensor negative = x.Lt(0), tail = UpperTail(negative.Where(-x, x));
    return x * negative.Where(tail, 1.0 - tail);
  });
}

// (1 + tanh y) / 2 is the sigmoid of 2 y.
Tensor Tensor::GeluTanh() const {
  return Composed(*this, [](const Tensor& x) {
    const Tensor inner = x + x * x * x * 0.044715;
    return x * (inner * (2 * std::sqrt(2 / std::numbers::pi))).Sigmoid();
  });
}

Tensor Tensor::QuickGelu() const {
  return Composed(*this, [](const Tensor& x) { return x * (x * 1.702).Sigmoid(); });
}

Tensor Tensor::Silu() const {
  return Composed(*this, [](const Tensor& x) { return x * x.Sigmoid(); });
}

Tensor Tensor::Softplus(double beta) const {
  return Composed(*this, [&](const Tensor& x) {
    return beta == 1 ? SoftplusOf(x) : SoftplusOf(x * beta) * (1 / beta);
  });
}

Tensor Tensor::Softsign() const {
  return Composed(*this, [](const Tensor& x) { return x / (x.Lt(0).Where(-x, x) + 1.0); });
}

Tensor Tensor::Mish() const {
  return Composed(*this, [](const Tensor& x) { return x * SoftplusOf(x).Tanh(); });
}

Tensor Tensor::Glu(int64_t axis) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("glu", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const Dim size = dims()[*at];
  if (!size.is_static() || size.size() % 2 != 0) {
    return builder_->Fail(
        InvalidArgument("glu: axis ", *at, " of ", ToString(dims()), " needs a fixed, even size"));
  }
  const int64_t half = size.size() / 2;
  return Slice(*at, 0, half) * Slice(*at, half, size.size()).Sigmoid();
}

}  // namespace telegrad
