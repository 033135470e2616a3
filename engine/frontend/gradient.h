// Reverse-mode differentiation. The gradients are nodes of the same graph.
#pragma once

#include <span>
#include <vector>

#include "engine/frontend/tensor.h"

namespace telegrad {

// d loss / d w for each w of `wrt`, each of w's shape and element type. `loss` has one element of a
// float type; a w that it does not depend on has gradient 0. Where a function has no derivative:
// maximum gives the gradient of a tie to its second operand (so relu'(0) = 0), and a max reduction
// divides it evenly. UNIMPLEMENTED, sticky in the builder, names an op without a rule on the way.
std::vector<Tensor> Gradients(const Tensor& loss, std::span<const Tensor> wrt);

}  // namespace telegrad
