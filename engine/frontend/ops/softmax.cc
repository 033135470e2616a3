// Sums of exponentials, shifted by the maximum so that none overflows. The shift cancels in value
// and gradient, so no gradient flows through it.
#include <limits>

#include "engine/frontend/ops/composed.h"
#include "engine/frontend/ops/reduce.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {

Tensor ExponentShift(const Tensor& max) {
  const Tensor m = max.Detach();
  return (m - m).Eq(0).Where(m, 0.0);  // inf - inf and NaN - NaN are no 0
}

Tensor Tensor::Softmax(int64_t axis) const {
  return Composed(*this, [&](const Tensor& x) {
    const Tensor e = (x - x.Reduce("softmax", ReduceKind::kMax, {axis}, true).Detach()).Exp();
    return e / e.Sum({axis}, true);
  });
}

Tensor Tensor::LogSoftmax(int64_t axis) const {
  return Composed(*this, [&](const Tensor& x) {
    const Tensor shifted = x - x.Reduce("log_softmax", ReduceKind::kMax, {axis}, true).Detach();
    return shifted - shifted.Exp().Sum({axis}, true).Log();
  });
}

Tensor Tensor::Softmin(int64_t axis) const {
  return Composed(*this, [&](const Tensor& x) { return (-x).Softmax(axis); });
}

Tensor Tensor::LogSumExp(const Axes& axes, bool keepdim) const {
  return Composed(*this, [&](const Tensor& x) {
    const Tensor max = x.Reduce("logsumexp", ReduceKind::kMax, axes, true);
    if (!max.valid()) return max;
    const Tensor shift = ExponentShift(max);
    const Tensor sum = (x - shift).Exp().Sum(axes, keepdim), none = sum.Eq(0);
    const Tensor log = none.Where(1.0, sum).Log() + shift.Reshape(sum.dims());
    // log 0 with a derivative of 0.
    return none.Where(-std::numeric_limits<double>::infinity(), log);
  });
}

}  // namespace telegrad
