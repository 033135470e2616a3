// Optimizers: they add the update of parameters to a graph. All their state, the step count
// included, lives in state slots, so that one plan runs every step.
#pragma once

#include <span>

#include "engine/frontend/builder.h"

namespace telegrad::optim {

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0;
};

// p -= lr * v with v = momentum * v + g. Slots "sgd.v.<name>" if there is momentum.
void Sgd(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
         const SgdOptions& options = {});

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

// Kingma and Ba, "Adam", 2015, algorithm 1. Slots "adam.m.<name>", "adam.v.<name>" and the powers
// of the betas, "adam.beta1_power" and "adam.beta2_power", which start at 1.
void Adam(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const AdamOptions& options = {});

}  // namespace telegrad::optim
