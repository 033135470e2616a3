#include "engine/frontend/nn/nn_parameters.h"

#include <algorithm>
#include <cmath>

#include "engine/base/strings.h"
#include "engine/frontend/tensor/host_random.h"

namespace telegrad::nn {

Tensor UniformParameter(Builder* builder, std::string_view layer, std::string_view name,
                        const Shape& shape, double bound, const Options& options) {
  const std::string full = StrCat(layer, ".", name);
  return builder->Trainable(options.dtype, shape, full,
                            Init::Uniform(-bound, bound, NamedSeed(options.seed, full)));
}

Tensor ConstantParameter(Builder* builder, std::string_view layer, std::string_view name,
                         const Shape& shape, double value, const Options& options) {
  return builder->Trainable(options.dtype, shape, StrCat(layer, ".", name), Init::Constant(value));
}

Tensor NormalParameter(Builder* builder, std::string_view layer, std::string_view name,
                       const Shape& shape, double deviation, const Options& options) {
  const std::string full = StrCat(layer, ".", name);
  return builder->Trainable(options.dtype, shape, full,
                            Init::Normal(0, deviation, NamedSeed(options.seed, full)));
}

double FanBound(int64_t fan_in) {
  return 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(fan_in, 1)));
}

}  // namespace telegrad::nn
