// Normalizing layers. Weights begin as 1, biases as 0.
#pragma once

#include <string_view>

#include "engine/frontend/nn/nn_parameters.h"

namespace telegrad::nn {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // of the running statistics: how much of a batch goes into them
  bool affine = true;     // with a weight and a bias
  DType dtype = DType::kFloat32;
};

// [N, channels, ...], each channel standardized over all other axes (Ioffe and Szegedy 2015). In
// training by the batch's own mean and variance, which also go into the state slots "running_mean"
// and "running_var" (the latter unbiased), counted by "num_batches_tracked"; else by those.
struct BatchNorm {
  BatchNorm(Builder* builder, std::string_view name, int64_t channels,
            const BatchNormOptions& options = {});
  Tensor operator()(const Tensor& x, bool training) const;

  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  BatchNormOptions options;
};

// The last axes, which have the sizes `shape`, standardized (Ba, Kiros and Hinton 2016).
struct LayerNorm {
  LayerNorm(Builder* builder, std::string_view name, const Sizes& shape,
            const Options& options = {}, double epsilon = 1e-5);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  double epsilon;
};

// [N, channels, H, W], standardized over the channels of each pixel.
struct LayerNorm2d : LayerNorm {
  using LayerNorm::LayerNorm;
  Tensor operator()(const Tensor& x) const;
};

struct NormOptions {
  double epsilon = 1e-5;
  bool affine = true;  // with a weight and a bias
  DType dtype = DType::kFloat32;
};

// [N, channels, ...], groups of channels standardized together (Wu and He 2018).
struct GroupNorm {
  GroupNorm(Builder* builder, std::string_view name, int64_t groups, int64_t channels,
            const NormOptions& options = {});
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  int64_t groups;
  double epsilon;
};

// [N, channels, ...], each channel of each sample standardized (Ulyanov et al. 2016). PyTorch's has
// no weight and bias unless asked for, tinygrad's has them.
struct InstanceNorm : GroupNorm {
  InstanceNorm(Builder* builder, std::string_view name, int64_t channels,
               const NormOptions& options = {})
      : GroupNorm(builder, name, channels, channels, options) {}
};

// [..., channels] over the root of its mean square, times the weight (Zhang and Sennrich 2019).
struct RmsNorm {
  RmsNorm(Builder* builder, std::string_view name, int64_t channels, double epsilon = 1e-6,
          const Options& options = {});
  Tensor operator()(const Tensor& x) const;

  Tensor weight;
  double epsilon;
};

}  // namespace telegrad::nn
