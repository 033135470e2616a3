// Layers: plain values that hold the tensors of their parameters. Making one registers trainable
// state slots "<name>.weight" and "<name>.bias", initialized uniformly in +-1/sqrt(fan in) (He et
// al. 2015 with the gain that PyTorch uses for these layers) where not said otherwise, from a
// stream of its own for each name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/frontend/tensor.h"

namespace telegrad::nn {

struct Options {
  uint64_t seed = 0;
  bool bias = true;
  DType dtype = DType::kFloat32;
};

// [..., in] -> [..., out]. The weight is [out, in].
struct Linear {
  Linear(Builder* builder, std::string_view name, int64_t in, int64_t out,
         const Options& options = {});
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
};

// [N, in, H, W] -> [N, out, OH, OW]. The weight is [out, in / groups, KH, KW].
struct Conv2d {
  Conv2d(Builder* builder, std::string_view name, int64_t in, int64_t out, int64_t kernel,
         const Window& window = {}, int64_t groups = 1, const Options& options = {});
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  Window window;
  int64_t groups;
};

// [..., channels], standardized over the channels, times the weight plus the bias, which begin as 1
// and 0.
struct LayerNorm {
  LayerNorm(Builder* builder, std::string_view name, int64_t channels, const Options& options = {},
            double epsilon = 1e-5);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  double epsilon;
};

}  // namespace telegrad::nn
