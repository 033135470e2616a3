// Sums of exponentials, shifted by the maximum so that none overflows. The shift cancels in value
// and gradient, so no gradient flows through it.
#include <limits>

#include "engine/frontend/reduce.h"

namespace telegrad {

Tensor ExponentShift(const Tensor& max) {
  const Tensor m = max.Detach();
  // inf - inf and NaN - NaN are no 0.
  return (m - m).Eq(0).Where(m, 0.0);
}

Tensor ShiftedLog(const Tensor& sum, const Tensor& shift) {
  const Tensor none = sum.Eq(0);
  return none.Where(-std::numeric_limits<double>::infinity(), none.Where(1.0, sum).Log() + shift);
}

Tensor Tensor::Softmax(int64_t axis) const {
  return InWideFloat(*this, [&](const Tensor& x) {
    const Tensor e = (x - x.Reduce("softmax", ReduceKind::kMax, {axis}, true).Detach()).Exp();
    return e / e.Sum({axis}, true);
  });
}

Tensor Tensor::LogSoftmax(int64_t axis) const {
  return InWideFloat(*this, [&](const Tensor& x) {
    const Tensor shifted = x - x.Reduce("log_softmax", ReduceKind::kMax, {axis}, true).Detach();
    return shifted - shifted.Exp().Sum({axis}, true).Log();
  });
}

Tensor Tensor::Softmin(int64_t axis) const {
  return InWideFloat(*this, [&](const Tensor& x) { return (-x).Softmax(axis); });
}

Tensor Tensor::LogSumExp(const Axes& axes, bool keepdim) const {
  return InWideFloat(*this, [&](const Tensor& x) {
    const Tensor max = x.Reduce("logsumexp", ReduceKind::kMax, axes, true);
    if (!max.valid()) return max;
    const Tensor shift = ExponentShift(max);
    const Tensor sum = (x - shift).Exp().Sum(axes, keepdim);
    return ShiftedLog(sum, keepdim ? shift : shift.Reshape(sum.dims()));
  });
}

}  // namespace telegrad
