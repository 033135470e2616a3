// Normalizations, of 16-bit floats in f32, since the squares of their deviations leave their range
// early.
#include "engine/base/status.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

Tensor Tensor::BatchNorm(const Tensor& mean, const Tensor& variance, const Tensor& weight,
                         const Tensor& bias, double epsilon) const {
  if (!valid()) return *this;
  if (rank() < 2) {
    return builder_->Fail(
        InvalidArgument("batch_norm: ", ToString(dims()), " has no axis 1 of channels"));
  }
  const Dim channels = dims()[1];
  Dims column(static_cast<size_t>(rank()) - 1, Dim(1));
  column[0] = channels;
  // Of one element a channel, before all other axes but the batch.
  const auto by_channel = [&](std::string_view name, const Tensor& t) {
    if (t.valid() && t.dims() == Dims{channels}) return t.Reshape(column);
    return builder_->Fail(InvalidArgument("batch_norm: the ", name, " of ", ToString(t.dims()),
                                          " for ", ToString(dims()), ", expected [",
                                          channels.size(), "]"));
  };
  const Tensor m = by_channel("mean", mean), v = by_channel("variance", variance);
  if (!m.valid() || !v.valid()) return m.valid() ? v : m;
  return Composed(*this, [&](const Tensor& x) {
    const DType wide = PromoteTypes(v.dtype(), x.dtype());
    Tensor factor = (v.Cast(wide) + epsilon).Sqrt().Reciprocal();
    if (weight.builder() != nullptr) factor = by_channel("weight", weight) * factor;
    const Tensor out = (x - m) * factor;
    return bias.builder() == nullptr ? out : out + by_channel("bias", bias);
  });
}

Tensor Tensor::LayerNorm(const Axes& axes, double epsilon) const {
  if (!valid()) return *this;
  const absl::StatusOr<Axes> over = ResolveAxes("layer_norm", axes, rank());
  return over.ok() ? Standardize(*over, epsilon) : builder_->Fail(over.status());
}

Tensor Tensor::GroupNorm(int64_t groups, double epsilon) const {
  if (!valid()) return *this;
  if (rank() < 2 || groups < 1 || !dims()[1].is_static() || dim(1) % groups != 0) {
    return builder_->Fail(InvalidArgument("group_norm: the channels, axis 1 of ", ToString(dims()),
                                          ", do not divide into ", groups, " groups"));
  }
  Dims split = dims();
  split[1] = dim(1) / groups;
  split.insert(split.begin() + 1, Dim(groups));
  Axes over;
  for (int64_t i = 2; i <= rank(); ++i) over.push_back(i);
  return Reshape(split).Standardize(over, epsilon).Reshape(dims());
}

Tensor Tensor::RmsNorm(int64_t axis, double epsilon) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("rms_norm", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  return Composed(*this, [&](const Tensor& x) {
    return x * ((x * x).Mean({*at}, true) + epsilon).Sqrt().Reciprocal();
  });
}

}  // namespace telegrad
