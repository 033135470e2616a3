#include "engine/frontend/nn.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/host_random.h"

namespace telegrad::nn {
namespace {

Tensor Parameter(Builder* builder, std::string_view layer, std::string_view name,
                 const Shape& shape, int64_t fan_in, const Options& options) {
  const std::string full = StrCat(layer, ".", name);
  const double bound = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(fan_in, 1)));
  return builder->Trainable(options.dtype, shape, full,
                            Init::Uniform(-bound, bound, NamedSeed(options.seed, full)));
}

}  // namespace

Linear::Linear(Builder* builder, std::string_view name, int64_t in, int64_t out,
               const Options& options)
    : weight(Parameter(builder, name, "weight", {out, in}, in, options)) {
  if (options.bias) bias = Parameter(builder, name, "bias", {out}, in, options);
}

Tensor Linear::operator()(const Tensor& x) const {
  const Tensor y = x.MatMul(weight.Transpose());
  return bias.builder() == nullptr ? y : y + bias;
}

Conv2d::Conv2d(Builder* builder, std::string_view name, int64_t in, int64_t out, int64_t kernel,
               const Window& window, int64_t groups, const Options& options)
    : window(window), groups(groups) {
  const int64_t in_group = groups > 0 ? in / groups : 0;
  const int64_t fan_in = in_group * kernel * kernel;
  weight = Parameter(builder, name, "weight", {out, in_group, kernel, kernel}, fan_in, options);
  if (options.bias) bias = Parameter(builder, name, "bias", {out}, fan_in, options);
}

Tensor Conv2d::operator()(const Tensor& x) const {
  const Tensor y = x.Conv(weight, window, groups);
  return bias.builder() == nullptr ? y : y + bias.Reshape({-1, 1, 1});
}

LayerNorm::LayerNorm(Builder* builder, std::string_view name, int64_t channels,
                     const Options& options, double epsilon)
    : weight(builder->Trainable(options.dtype, {channels}, StrCat(name, ".weight"),
                                Init::Constant(1))),
      epsilon(epsilon) {
  if (!options.bias) return;
  bias = builder->Trainable(options.dtype, {channels}, StrCat(name, ".bias"), Init::Constant(0));
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  const Tensor y = x.Standardize({-1}, epsilon) * weight;
  return bias.builder() == nullptr ? y : y + bias;
}

}  // namespace telegrad::nn
