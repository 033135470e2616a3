// Means, variances and norms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/ops/reduce.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool CheckAxes(std::string_view name, const Tensor& x, const Axes& axes) {
  if (!x.valid()) return false;
  const absl::StatusOr<Axes> resolved = ResolveAxes(name, axes, x.rank());
  if (!resolved.ok()) x.builder()->Fail(resolved.status());
  return resolved.ok();
}

// Of nothing it is 0 / 0, NaN, as in NumPy.
Tensor WideMean(const Tensor& x, const Axes& axes, bool keepdim) {
  return x.Sum(axes, keepdim) / CountOf(x, axes, x.dtype());
}

struct SampleMoments {
  Tensor variance, mean;
};

// In two passes: a difference of two sums would cancel. As in NumPy a count below 0 is 0.
SampleMoments WideMoments(const Tensor& x, const Axes& axes, double correction, bool keepdim) {
  const Tensor mean = WideMean(x, axes, true), centered = x - mean;
  const Tensor rest = CountOf(x, axes, x.dtype(), correction);
  const Tensor variance = (centered * centered).Sum(axes, keepdim) / rest;
  return {variance, keepdim ? mean : mean.Reshape(variance.dims())};
}

// sum |x|^p, without the infinite derivatives that a power has at 0.
Tensor SumOfPowers(const Tensor& x, double p, const Axes& axes, bool keepdim) {
  const Tensor size = x.Abs();
  if (p == 1) return size.Sum(axes, keepdim);
  if (p == 2) return (x * x).Sum(axes, keepdim);
  if (p == 3) return (size * x * x).Sum(axes, keepdim);
  if (p < 0) return size.Pow(p).Sum(axes, keepdim);
  const Tensor some = x.Ne(0);
  return some.Where(some.Where(size, 1.0).Pow(p), 0.0).Sum(axes, keepdim);
}

}  // namespace

Tensor CountOf(const Tensor& x, const Axes& axes, DType type, double less) {
  const Tensor n = x.SizeOf(axes);
  if (!n.valid()) return n;
  if (!n.uop().is_const()) return (n.Cast(type) - less).Maximum(0);
  return x.builder()->Const(type, std::max(0.0, static_cast<double>(n.uop().const_word()) - less));
}

Tensor SafeRoot(const Tensor& x, double p) {
  const Tensor some = x.Gt(0), base = some.Where(x, 1.0);
  return some.Where(p == 2 ? base.Sqrt() : base.Pow(1 / p), x);
}

Tensor Tensor::Mean(const Axes& axes, bool keepdim) const {
  if (!CheckAxes("mean", *this, axes)) return {builder_, UOp()};
  return Composed(*this, [&](const Tensor& x) { return WideMean(x, axes, keepdim); });
}

Tensor Tensor::Var(const Axes& axes, double correction, bool keepdim) const {
  if (!CheckAxes("var", *this, axes)) return {builder_, UOp()};
  return Composed(
      *this, [&](const Tensor& x) { return WideMoments(x, axes, correction, keepdim).variance; });
}

Tensor Tensor::Std(const Axes& axes, double correction, bool keepdim) const {
  if (!CheckAxes("std", *this, axes)) return {builder_, UOp()};
  return Composed(*this, [&](const Tensor& x) {
    return SafeRoot(WideMoments(x, axes, correction, keepdim).variance);
  });
}

std::pair<Tensor, Tensor> Tensor::VarMean(const Axes& axes, double correction, bool keepdim) const {
  return {Var(axes, correction, keepdim), Mean(axes, keepdim)};
}

std::pair<Tensor, Tensor> Tensor::StdMean(const Axes& axes, double correction, bool keepdim) const {
  return {Std(axes, correction, keepdim), Mean(axes, keepdim)};
}

Tensor Tensor::Mean() const { return Mean(AllAxes(*this)); }
Tensor Tensor::Var() const { return Var(AllAxes(*this)); }
Tensor Tensor::Std() const { return Std(AllAxes(*this)); }

Tensor Tensor::Norm(const Axes& axes, double p, bool keepdim) const {
  if (!CheckAxes("norm", *this, axes)) return {builder_, UOp()};
  if (std::isnan(p)) return builder_->Fail(InvalidArgument("norm: the order is no number"));
  return Composed(*this, [&](const Tensor& x) {
    if (p == kInfinity) return x.Abs().Max(axes, keepdim);
    if (p == -kInfinity) return x.Abs().Min(axes, keepdim);
    if (p == 0) return x.Ne(0).Cast(x.dtype()).Sum(axes, keepdim);
    const Tensor sum = SumOfPowers(x, p, axes, keepdim);
    return p == 1 ? sum : p < 0 ? sum.Pow(1 / p) : SafeRoot(sum, p);
  });
}

Tensor Tensor::Normalize(double p, int64_t axis, double epsilon) const {
  if (!CheckAxes("normalize", *this, {axis})) return {builder_, UOp()};
  return Composed(*this,
                  [&](const Tensor& x) { return x / x.Norm({axis}, p, true).Maximum(epsilon); });
}

Tensor Tensor::Standardize(const Axes& axes, double epsilon) const {
  if (!CheckAxes("standardize", *this, axes)) return {builder_, UOp()};
  return Composed(*this, [&](const Tensor& x) {
    const Tensor centered = x - WideMean(x, axes, true);
    return centered * (WideMean(centered * centered, axes, true) + epsilon).Sqrt().Reciprocal();
  });
}

}  // namespace telegrad
