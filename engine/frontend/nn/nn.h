// Layers: plain values that hold the tensors of their parameters. Making one registers trainable
// state slots named as PyTorch names them below the layer's name ("<name>.weight", "<name>.bias",
// ...), so that its state dicts load (state_dict.h). Initial values are in PyTorch's default
// ranges: uniform in +-1 / sqrt(fan in) where not said otherwise.
//
// Normalizations are in nn_norms.h, attention in nn_attention.h, both included here.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/frontend/nn/nn_attention.h"
#include "engine/frontend/nn/nn_norms.h"
#include "engine/frontend/nn/nn_parameters.h"
#include "engine/frontend/ops/rng.h"
#include "engine/frontend/tensor/tensor.h"

namespace telegrad::nn {

// [..., in] -> [..., out]. The weight is [out, in].
struct Linear {
  Linear(Builder* builder, std::string_view name, int64_t in, int64_t out,
         const Options& options = {});
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
};

// [N, in, spatial axes] -> [N, out, spatial axes]. The weight is [out, in / groups, kernel].
struct Conv {
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  Window window;
  int64_t groups;

 protected:
  Conv(Builder* builder, std::string_view name, int64_t in, int64_t out, const Shape& kernel,
       const Window& window, int64_t groups, const Options& options);
};

struct Conv1d : Conv {
  Conv1d(Builder* builder, std::string_view name, int64_t in, int64_t out, int64_t kernel,
         const Window& window = {}, int64_t groups = 1, const Options& options = {})
      : Conv(builder, name, in, out, {kernel}, window, groups, options) {}
};

// The kernel is {height, width} or one number for both.
struct Conv2d : Conv {
  Conv2d(Builder* builder, std::string_view name, int64_t in, int64_t out, const Sizes& kernel,
         const Window& window = {}, int64_t groups = 1, const Options& options = {})
      : Conv(builder, name, in, out, kernel.Spread(2), window, groups, options) {}
};

// The transpose of a convolution. The weight is [in, out / groups, kernel]; `output_pads`, one
// number or one for each axis, adds to the ends of the result.
struct ConvTranspose {
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  Window window;
  int64_t groups;
  std::vector<int64_t> output_pads;

 protected:
  ConvTranspose(Builder* builder, std::string_view name, int64_t in, int64_t out,
                const Shape& kernel, const Window& window, int64_t groups,
                const std::vector<int64_t>& output_pads, const Options& options);
};

struct ConvTranspose1d : ConvTranspose {
  ConvTranspose1d(Builder* builder, std::string_view name, int64_t in, int64_t out, int64_t kernel,
                  const Window& window = {}, int64_t groups = 1,
                  const std::vector<int64_t>& output_pads = {}, const Options& options = {})
      : ConvTranspose(builder, name, in, out, {kernel}, window, groups, output_pads, options) {}
};

struct ConvTranspose2d : ConvTranspose {
  ConvTranspose2d(Builder* builder, std::string_view name, int64_t in, int64_t out,
                  const Sizes& kernel, const Window& window = {}, int64_t groups = 1,
                  const std::vector<int64_t>& output_pads = {}, const Options& options = {})
      : ConvTranspose(builder, name, in, out, kernel.Spread(2), window, groups, output_pads,
                      options) {}
};

// Integers [...] -> [..., channels]: rows of the weight [count, channels], which is drawn from the
// standard normal distribution. A number out of range gives zeros.
struct Embedding {
  Embedding(Builder* builder, std::string_view name, int64_t count, int64_t channels,
            const Options& options = {});
  Tensor operator()(const Tensor& index) const;

  Tensor weight;
};

// One step of a long short-term memory (Hochreiter and Schmidhuber 1997): x [N, in], hidden and
// cell [N, hidden] -> the next hidden and cell. Weights weight_ih [4 hidden, in], weight_hh
// [4 hidden, hidden] and biases bias_ih, bias_hh [4 hidden] hold the gates input, forget, cell and
// output one after another; all begin in +-1 / sqrt(hidden).
struct LstmCell {
  LstmCell(Builder* builder, std::string_view name, int64_t in, int64_t hidden,
           const Options& options = {});
  std::pair<Tensor, Tensor> operator()(const Tensor& x, const Tensor& hidden,
                                       const Tensor& cell) const;

  Tensor weight_ih, weight_hh, bias_ih, bias_hh;
};

// In training, x with each element 0 with probability p and the others divided by 1 - p; else x.
struct Dropout {
  explicit Dropout(Rng* rng, double p = 0.5) : rng(rng), p(p) {}
  Tensor operator()(const Tensor& x, bool training) const;

  Rng* rng;
  double p;
};

}  // namespace telegrad::nn
