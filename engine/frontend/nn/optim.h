// Optimizers: they add the update of parameters to a graph. All their state, the step count
// included, lives in state slots, so that one plan runs every step.
//
// A call is one group of parameters with its options; further groups of the same optimizer need
// another name, which begins the names of their slots. State of parameters narrower than f32 is
// f32, and so is the arithmetic of their update. "<name>.step", an i32 that counts the steps,
// exists where the learning rate is a schedule.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/frontend/nn/learning_rate.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad::optim {

struct SgdOptions {
  LearningRate lr = 1e-2;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient, times the parameter
  std::string name = "sgd";
};

// p -= lr * v with v = momentum * v + g; with nesterov, p -= lr * (g + momentum * v). Slots
// "sgd.v.<parameter>" if there is momentum.
void Sgd(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
         const SgdOptions& options = {});

struct AdamOptions {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient, times the parameter
  std::string name = "adam";
};

// Kingma and Ba, "Adam", 2015, algorithm 1. Slots "adam.m.<parameter>" and "adam.v.<parameter>",
// and for the bias corrections "adam.correction1" and "adam.correction2": 1 - beta^step, kept as
// the same running means of ones, since subtracting a power from 1 loses digits.
void Adam(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const AdamOptions& options = {});

struct AdamWOptions {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // of the parameter itself, times lr
  std::string name = "adamw";
};

// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019. Slots as Adam's.
void AdamW(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
           const AdamWOptions& options = {});

struct LambOptions {
  LearningRate lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double weight_decay = 0;
  std::string name = "lamb";
};

// You et al., "Large batch optimization for deep learning", 2020: AdamW's direction scaled by
// |p| / |direction|. Slots as Adam's.
void Lamb(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const LambOptions& options = {});

struct LarsOptions {
  LearningRate lr = 1e-3;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 1e-4;
  double trust = 1e-3;  // of |p| / (|g| + weight_decay * |p|), which scales the gradient
  // The rate scales what goes into the momentum, as in the paper; else what comes out of it.
  bool classic = true;
  std::string name = "lars";
};

// You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017. Slots
// "lars.v.<parameter>" if there is momentum.
void Lars(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const LarsOptions& options = {});

struct MuonOptions {
  LearningRate lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  double weight_decay = 0.1;  // of the parameter itself, times lr
  int steps = 5;
  std::array<double, 3> coefficients = {3.4445, -4.775, 2.0315};  // of x, x^3 and x^5
  std::string name = "muon";
};

// Jordan et al., "Muon", 2024: the momentum's matrix [first axis, others], made nearly orthogonal
// by Newton-Schulz steps. Parameters have at least two axes; the others want another optimizer.
// Slots "muon.v.<parameter>" if there is momentum.
void Muon(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const MuonOptions& options = {});

// The gradients scaled so that the root of the sum of all squares is at most `limit`; `norm`, where
// given, is what it was.
std::vector<Tensor> ClipByNorm(std::span<const Tensor> grads, double limit, Tensor* norm = nullptr);
// Each element between -limit and limit.
std::vector<Tensor> ClipByValue(std::span<const Tensor> grads, double limit);

}  // namespace telegrad::optim
