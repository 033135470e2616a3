// What the transformers among the models share.
#pragma once

#include <cstdint>
#include <string>

#include "engine/frontend/nn/nn.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad::testing {

// [batch, length, channels] -> [batch, heads, length, channels / heads].
inline Tensor SplitHeads(const Tensor& x, int64_t heads) {
  return x.Reshape({x.dim(0), x.dim(1), heads, -1}).Permute({0, 2, 1, 3});
}

inline Tensor MergeHeads(const Tensor& x) {
  return x.Permute({0, 2, 1, 3}).Reshape({x.dim(0), x.dim(2), -1});
}

// A table of `rows` vectors, as a weight.
inline Tensor Table(Builder* b, const std::string& name, int64_t rows, int64_t channels) {
  return b->Trainable(DType::kFloat32, {rows, channels}, name, Init::Uniform(-0.05, 0.05, rows));
}

// What the queries [.., heads, length, size] see of the values, brought together.
inline Tensor Attend(Builder* b, const std::string& name, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor& mask, bool causal) {
  const Tensor merged = MergeHeads(q.ScaledDotProductAttention(k, v, mask, causal));
  return nn::Linear(b, name + ".out", merged.dim(-1), merged.dim(-1))(merged);
}

// Four times as wide on the inside.
inline Tensor Perceptron(Builder* b, const std::string& name, const Tensor& x,
                         Tensor (Tensor::*activation)() const) {
  const int64_t channels = x.dim(-1);
  const Tensor inner = (nn::Linear(b, name + ".in", channels, 4 * channels)(x).*activation)();
  return nn::Linear(b, name + ".out", 4 * channels, channels)(inner);
}

}  // namespace telegrad::testing
