// Small linear algebra: products and sums.
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/matrices.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

Tensor Tensor::Trace() const {
  if (!valid()) return *this;
  const Dims from = dims();
  if (rank() < 2) {
    return builder_->Fail(
        InvalidArgument("trace: ", ToString(from), " is no matrix, expected two axes or more"));
  }
  const Dim &m = from[rank() - 2], &n = from[rank() - 1];
  const Tensor diagonal =
      builder_->Iota(DType::kInt64, m).Unsqueeze(1).Eq(builder_->Iota(DType::kInt64, n));
  return diagonal.Where(IsBool(dtype()) ? Cast(DType::kInt32) : *this, 0).Sum({-2, -1});
}

Tensor Tensor::Outer(const Tensor& other) const {
  return valid() && other.valid() ? Flatten().Unsqueeze(1) * other.Flatten() : *this * other;
}

// c[i] = a[i + 1] b[i + 2] - a[i + 2] b[i + 1], the positions modulo 3.
Tensor Tensor::Cross(const Tensor& other, int64_t axis) const {
  const auto [a, b] = Unify("cross", *this, other);
  if (!a.valid() || !b.valid()) return a;
  const absl::StatusOr<int64_t> at = ResolveAxis("cross", axis, a.rank());
  if (!at.ok()) return builder_->Fail(at.status());
  if (a.dims()[*at] != Dim(3)) {
    return builder_->Fail(InvalidArgument("cross: axis ", *at, " of ", ToString(dims()), " and ",
                                          ToString(other.dims()), " has size ", a.dim(*at),
                                          ", expected 3"));
  }
  const Tensor a1 = a.Roll({2}, {*at}), a2 = a.Roll({1}, {*at});
  const Tensor b1 = b.Roll({2}, {*at}), b2 = b.Roll({1}, {*at});
  return a1 * b2 - a2 * b1;
}

// Of X X^T a polynomial times X, the singular values of which the coefficients c0 + c1 s^2 + ...
// move towards 1 (as Muon does to gradients); by Horner's rule, with the smaller side as rows.
Tensor Tensor::NewtonSchulz(int64_t steps, const std::vector<double>& coefficients,
                            double epsilon) const {
  if (!valid()) return *this;
  const absl::StatusOr<Matrices> x =
      MatricesOf("newton_schulz", *this, std::numeric_limits<int64_t>::max());
  if (!x.ok()) return builder_->Fail(x.status());
  constexpr int64_t kMostSteps = 100;
  if (steps < 0 || steps > kMostSteps || coefficients.empty()) {
    return builder_->Fail(InvalidArgument("newton_schulz: ", steps, " steps of ",
                                          coefficients.size(), " coefficients, expected 0 to ",
                                          kMostSteps, " steps and a coefficient"));
  }
  Tensor g = x->all / (x->all.Norm({-2, -1}, 2, true) + epsilon);
  const bool tall = x->m() > x->n();
  if (tall) g = g.Transpose();
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor square = g.MatMul(g.Transpose());
    Tensor sum = g * coefficients.back();
    for (size_t i = coefficients.size() - 1; i-- > 0;) {
      sum = g * coefficients[i] + square.MatMul(sum);
    }
    g = sum;
  }
  return x->Back(tall ? g.Transpose() : g);
}

}  // namespace telegrad
