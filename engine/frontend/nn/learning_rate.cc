// Each schedule is arithmetic on a scalar in f32; steps are exact up to 2^24, and a step beyond a
// schedule's end counts as its end.
#include "engine/frontend/nn/learning_rate.h"

#include <algorithm>
#include <numbers>

#include "engine/frontend/tensor/builder.h"

namespace telegrad::optim {
namespace {

Tensor Number(const Tensor& like, double value) {
  return like.builder()->Const(DType::kFloat32, value);
}

// `x`, between 0 and 1.
Tensor Clamp(const Tensor& x) { return x.Clamp(0, 1); }

// From 1 at 0 down to 0 at 1: half a cosine or a line.
Tensor Fall(const Tensor& x, bool linear) {
  if (linear) return 1.0 - x;
  return ((x * std::numbers::pi).Cos() + 1.0) * 0.5;
}

double AtLeastOne(int64_t n) { return static_cast<double>(std::max<int64_t>(n, 1)); }

}  // namespace

Tensor LearningRate::At(const Tensor& step) const {
  return is_constant() ? Number(step, value_) : schedule_(step);
}

LearningRate StepDecay(double lr, int64_t every, double gamma) {
  return LearningRate::Schedule([=](const Tensor& step) {
    const Tensor drops = step.FloorDiv(std::max<int64_t>(every, 1));
    return Number(step, gamma).Pow(drops.Cast(DType::kFloat32)) * lr;
  });
}

LearningRate ExponentialDecay(double lr, double gamma) { return StepDecay(lr, 1, gamma); }

LearningRate CosineDecay(double lr, int64_t steps, double least) {
  return LearningRate::Schedule([=](const Tensor& step) {
    const Tensor done = Clamp(step.Cast(DType::kFloat32) * (1 / AtLeastOne(steps)));
    return Fall(done, false) * (lr - least) + least;
  });
}

LearningRate WarmUp(int64_t steps, double factor, const LearningRate& then) {
  return LearningRate::Schedule([=](const Tensor& step) {
    const Tensor after = step - steps;
    const Tensor rate = then.At(after.Maximum(after.Like(0)));
    const Tensor done = Clamp(step.Cast(DType::kFloat32) * (1 / AtLeastOne(steps)));
    return rate * (done * (1 - factor) + factor);
  });
}

LearningRate OneCycle(double peak, int64_t steps, const OneCycleOptions& options) {
  return LearningRate::Schedule([=](const Tensor& step) {
    const double top = options.rising * static_cast<double>(steps) - 1;
    const double end = static_cast<double>(steps) - 1;
    const Tensor at = step.Cast(DType::kFloat32);
    const auto part = [&](double from, double to) {
      return Clamp((at - from) * (1 / std::max(to - from, 1e-6)));
    };
    const double first = peak * options.first, last = peak * options.last;
    const Tensor up = Fall(part(0, top), options.linear) * (first - peak) + peak;
    const Tensor down = Fall(part(top, end), options.linear) * (peak - last) + last;
    return at.Le(at.Like(top)).Where(up, down);
  });
}

}  // namespace telegrad::optim
