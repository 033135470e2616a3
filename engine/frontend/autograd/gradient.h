// Reverse-mode differentiation. The gradients are nodes of the same graph.
#pragma once

#include <span>
#include <vector>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad {

// d loss / d w for each w of `wrt`, each of w's shape and element type. `loss` has one element of a
// float type; a w that it does not depend on has gradient 0. The gradients can be differentiated
// again. Where a function has no derivative: maximum gives the gradient of a tie to its second
// operand (so relu'(0) = 0), a max reduction and SCATTER's min and max divide it evenly.
// UNIMPLEMENTED, sticky in the builder, names an op without a rule on the way.
std::vector<Tensor> Gradients(const Tensor& loss, std::span<const Tensor> wrt);

// The same of several outputs whose gradients are given, each of its output's type and shape: the
// sum over the outputs of seed^T d output / d w (PyTorch's autograd.grad, JAX's vjp).
std::vector<Tensor> Gradients(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                              std::span<const Tensor> wrt);

}  // namespace telegrad
