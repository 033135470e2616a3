// Models that the examples, tests and benchmarks share.
#pragma once

#include "absl/status/statusor.h"
#include "engine/frontend/nn/optim.h"
#include "engine/frontend/tensor/plan.h"

namespace telegrad {

// A small convolutional network for 8x8 digits: conv 1->16, relu, conv 16->32, relu, maxpool 2,
// linear 64, relu, linear 10; all 3x3 with padding 1.
struct DigitsCnn {
  uint64_t seed = 1;
  optim::AdamOptions adam = {.lr = 2e-3};

  // Inputs "images" [batch, 1, 8, 8] f32 and "labels" [batch] i32; one Adam step on the state
  // slots; outputs "loss" [1] f32 and "correct" [1] i32, both of the batch before the step.
  absl::StatusOr<Plan> TrainStep(int64_t batch) const;
  // Input "images"; outputs "logits" [batch, 10] f32 and "predictions" [batch] i32. Its state slots
  // are those parameters of TrainStep with the same names.
  absl::StatusOr<Plan> Eval(int64_t batch) const;
};

}  // namespace telegrad
