// What the transformers among the models share.
#pragma once

#include <cstdint>
#include <string>

#include "engine/frontend/builder.h"
#include "engine/frontend/nn.h"

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
  return b->State(DType::kFloat32, {rows, channels}, name, Init::Uniform(-0.05, 0.05, rows));
}

}  // namespace telegrad::testing
