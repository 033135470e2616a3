// Attention with several heads, and the keys and values that a text in the making keeps.
#pragma once

#include <string_view>

#include "engine/frontend/nn/nn_parameters.h"

namespace telegrad::nn {

// Keys and values of the positions so far, [batch, heads, length, channels / heads] each: state
// slots "<name>.keys" and "<name>.values", which begin as zeros.
struct KvCache {
  Tensor keys, values;
};

// [N, L, channels] -> [N, L, channels] (Vaswani et al. 2017). The slots are PyTorch's
// MultiheadAttention's: "in_proj_weight" [3 channels, channels] with "in_proj_bias" for queries,
// keys and values one after another, "out_proj.weight" and "out_proj.bias"; the first begins as
// Glorot and Bengio 2010 have it, the biases as 0.
//
// A mask is bool and says what may be seen, or is added to the scores; it broadcasts to
// [N, heads, L, S]. Causal: position i sees the keys up to i.
struct MultiHeadAttention {
  MultiHeadAttention(Builder* builder, std::string_view name, int64_t channels, int64_t heads,
                     const Options& options = {});

  Tensor operator()(const Tensor& x, const Tensor& mask = {}, bool causal = false) const;
  // Queries from x, keys and values from others [N, S, channels].
  Tensor operator()(const Tensor& x, const Tensor& key, const Tensor& value, const Tensor& mask,
                    bool causal = false) const;

  KvCache MakeCache(Builder* builder, std::string_view name, int64_t batch, int64_t length) const;
  // x at the positions `position`, `position` + 1, ..., an i64 scalar, usually a variable of the
  // plan: its keys and values go into the cache in place, and it sees all positions up to its own.
  // One call for each cache and plan.
  Tensor Continue(const Tensor& x, const KvCache& cache, const Tensor& position) const;

  Tensor in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias;
  int64_t heads;

 private:
  // Part 0, 1 or 2 of the projection, [N, heads, length, channels / heads].
  Tensor Project(const Tensor& x, int64_t part) const;
  Tensor Join(const Tensor& heads) const;
};

}  // namespace telegrad::nn
