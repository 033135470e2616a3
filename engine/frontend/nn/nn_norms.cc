#include "engine/frontend/nn/nn_norms.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::nn {
namespace {

// One number a channel, axis 1 of `x`.
Tensor OnChannels(const Tensor& parameter, const Tensor& x) {
  Shape shape(std::max<int64_t>(x.rank(), 2) - 1, 1);
  shape[0] = -1;
  return parameter.Reshape(shape);
}

// An error unless x is [N, channels, ...].
bool HasChannels(std::string_view layer, const Tensor& x, int64_t channels) {
  if (x.valid() && x.rank() >= 2 && x.dim(1) == channels) return true;
  if (x.valid()) {
    x.builder()->Fail(
        InvalidArgument(layer, ": ", ToString(x.shape()), ", expected [N, ", channels, ", ...]"));
  }
  return false;
}

}  // namespace

BatchNorm::BatchNorm(Builder* builder, std::string_view name, int64_t channels,
                     const BatchNormOptions& options)
    : options(options) {
  const Options of_parameters{.dtype = options.dtype};
  if (options.affine) {
    weight = ConstantParameter(builder, name, "weight", {channels}, 1, of_parameters);
    bias = ConstantParameter(builder, name, "bias", {channels}, 0, of_parameters);
  }
  running_mean =
      builder->State(options.dtype, {channels}, StrCat(name, ".running_mean"), Init::Constant(0));
  running_var =
      builder->State(options.dtype, {channels}, StrCat(name, ".running_var"), Init::Constant(1));
  num_batches_tracked =
      builder->State(DType::kInt64, {}, StrCat(name, ".num_batches_tracked"), Init::Constant(0));
}

Tensor BatchNorm::operator()(const Tensor& x, bool training) const {
  if (!HasChannels("batch_norm", x, running_mean.dim(0))) return {};
  Tensor centered, variance;
  if (training) {
    Axes axes = {0};
    for (int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
    const Tensor mean = x.Mean(axes, true);
    centered = x - mean;
    variance = (centered * centered).Mean(axes, true);
    // What the samples' own mean took off their variance: n / (n - 1).
    const auto n =
        static_cast<double>(x.size()) / static_cast<double>(std::max<int64_t>(mean.size(), 1));
    Builder* builder = x.builder();
    const auto track = [&](const Tensor& slot, const Tensor& now) {
      const Tensor flat = now.Detach().Reshape({-1}).Cast(slot.dtype());
      builder->Update(slot,
                      builder->Updated(slot) * (1 - options.momentum) + flat * options.momentum);
    };
    track(running_mean, mean);
    track(running_var, variance * (n / std::max(n - 1, 1.0)));
    builder->Update(num_batches_tracked, builder->Updated(num_batches_tracked) + 1);
  } else {
    centered = x - OnChannels(running_mean, x);
    variance = OnChannels(running_var, x);
  }
  const Tensor y = centered * (variance + options.epsilon).Sqrt().Reciprocal();
  return options.affine ? y * OnChannels(weight, x) + OnChannels(bias, x) : y;
}

LayerNorm::LayerNorm(Builder* builder, std::string_view name, const Sizes& shape,
                     const Options& options, double epsilon)
    : weight(ConstantParameter(builder, name, "weight", shape.values(), 1, options)),
      epsilon(epsilon) {
  if (options.bias) bias = ConstantParameter(builder, name, "bias", shape.values(), 0, options);
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  Axes axes;
  for (int64_t i = -weight.rank(); i < 0; ++i) axes.push_back(i);
  const Tensor y = x.Standardize(axes, epsilon) * weight;
  return Has(bias) ? y + bias : y;
}

Tensor LayerNorm2d::operator()(const Tensor& x) const {
  return LayerNorm::operator()(x.Permute({0, 2, 3, 1})).Permute({0, 3, 1, 2});
}

GroupNorm::GroupNorm(Builder* builder, std::string_view name, int64_t groups, int64_t channels,
                     const NormOptions& options)
    : groups(groups), epsilon(options.epsilon) {
  if (groups < 1 || channels % groups != 0) {
    builder->Fail(InvalidArgument("group_norm: ", channels, " channels in ", groups, " groups"));
  }
  if (!options.affine) return;
  const Options of_parameters{.dtype = options.dtype};
  weight = ConstantParameter(builder, name, "weight", {channels}, 1, of_parameters);
  bias = ConstantParameter(builder, name, "bias", {channels}, 0, of_parameters);
}

Tensor GroupNorm::operator()(const Tensor& x) const {
  if (Has(weight) && !HasChannels("group_norm", x, weight.dim(0))) return {};
  if (!x.valid() || x.rank() < 2 || groups < 1 || x.dim(1) % groups != 0) {
    return x.builder() == nullptr
               ? Tensor()
               : x.builder()->Fail(InvalidArgument("group_norm: ", ToString(x.shape()), " in ",
                                                   groups, " groups"));
  }
  const Tensor y = x.Reshape({x.dims()[0], groups, -1}).Standardize({2}, epsilon).Reshape(x.dims());
  return Has(weight) ? y * OnChannels(weight, x) + OnChannels(bias, x) : y;
}

RmsNorm::RmsNorm(Builder* builder, std::string_view name, int64_t channels, double epsilon,
                 const Options& options)
    : weight(ConstantParameter(builder, name, "weight", {channels}, 1, options)),
      epsilon(epsilon) {}

Tensor RmsNorm::operator()(const Tensor& x) const {
  return x * ((x * x).Mean({-1}, true) + epsilon).Sqrt().Reciprocal() * weight;
}

}  // namespace telegrad::nn
