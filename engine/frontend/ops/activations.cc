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
  return Composed(*this, [](const Tensor& x) { return x * (x + 3.0).Relu6() * (1.0 / 6); });
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

Tensor Tensor::Gelu() const {
  return Composed(*this, [](const Tensor& x) {
    return x * 0.5 * ((x * (1 / std::numbers::sqrt2)).Erf() + 1.0);
  });
}

Tensor Tensor::GeluTanh() const {
  return Composed(*this, [](const Tensor& x) {
    const Tensor inner = x + x * x * x * 0.044715;
    return x * 0.5 * ((inner * std::sqrt(2 / std::numbers::pi)).Tanh() + 1.0);
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
