// The derivative of each op: one row for each. gradient.cc applies them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// A node of a graph as tensors.
struct GradientNode {
  Tensor out;  // the node itself
  std::vector<Tensor> src;
  std::vector<int64_t> arg;

  static GradientNode Of(Builder* builder, UOp uop);
  const Tensor& x() const { return src[0]; }
  const Tensor& y() const { return src[1]; }
  // What an argument word that is a size or a position stands for.
  Dim Size(size_t word) const {
    return arg[word] >= 0 ? Dim(arg[word]) : Dim(src[static_cast<size_t>(-arg[word] - 1)]);
  }
};

// Gradients of the sources from `g`, the gradient of the node's value: those at the end may be
// left out, and an empty tensor stands for zero. Errors are sticky in the builder.
using GradientRule = std::vector<Tensor> (*)(const GradientNode& n, const Tensor& g);

// Null if the op has none.
GradientRule FindGradientRule(Op op);

}  // namespace telegrad
