// Learning rates: a number, or a schedule, which is a function of the number of steps done before.
// That number is device state of the optimizer, so that one plan runs every step of a schedule.
#pragma once

#include <functional>

#include "engine/frontend/tensor/tensor.h"

namespace telegrad::optim {

class LearningRate {
 public:
  // From the steps done before, an i32 scalar on the device, to an f32 scalar.
  using Schedule = std::function<Tensor(const Tensor& step)>;

  LearningRate(double value) : value_(value) {}                        // NOLINT: a number is one
  LearningRate(Schedule schedule) : schedule_(std::move(schedule)) {}  // NOLINT: so is a function

  bool is_constant() const { return schedule_ == nullptr; }
  double value() const { return value_; }  // of a constant one
  // The scalar at that step; `step` is not used by a constant one but for its builder.
  Tensor At(const Tensor& step) const;

 private:
  double value_ = 0;
  Schedule schedule_;
};

// lr * gamma^floor(step / every).
LearningRate StepDecay(double lr, int64_t every, double gamma = 0.1);
// lr * gamma^step.
LearningRate ExponentialDecay(double lr, double gamma);
// Half a cosine from lr down to `least` in `steps` steps, then `least` (Loshchilov and Hutter
// 2017).
LearningRate CosineDecay(double lr, int64_t steps, double least = 0);
// A line from `factor` times the first rate of `then` to all of it in `steps` steps; from there on
// `then`, from its own step 0.
LearningRate WarmUp(int64_t steps, double factor, const LearningRate& then);

struct OneCycleOptions {
  double rising = 0.3;      // the part of the steps that goes up
  double first = 1.0 / 25;  // of the peak: the first rate
  double last = 1e-4 / 25;  // of the peak: the last rate
  bool linear = false;      // lines, not cosines
};
// Up to the peak and down again in `steps` steps (Smith and Topin 2018), then the last rate.
LearningRate OneCycle(double peak, int64_t steps, const OneCycleOptions& options = {});

}  // namespace telegrad::optim
