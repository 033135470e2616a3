#include "engine/frontend/nn/optim.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::optim {
namespace {

// One parameter on its way through a step, in the type that its update is computed in.
struct Item {
  Tensor param;      // the slot
  std::string name;  // of the slot
  Tensor p, g;
  Tensor lr;  // scalar
};

DType ComputeType(DType dtype) { return IsNarrowFloat(dtype) ? DType::kFloat32 : dtype; }

class ParameterGroup {
 public:
  ParameterGroup(Builder* builder, std::string name, std::span<const Tensor> params,
                 std::span<const Tensor> grads, const LearningRate& lr)
      : builder_(builder), name_(std::move(name)) {
    if (!Check(params, grads) || params.empty()) return;
    Tensor rate;
    if (!lr.is_constant()) {
      const Tensor step = State("step", DType::kInt32, {});
      rate = lr.At(step);
      builder_->Store(step, step + 1);
    }
    for (size_t i = 0; i < params.size(); ++i) {
      const DType type = ComputeType(params[i].dtype());
      items_.push_back({params[i], builder_->FindSlot(params[i])->name, params[i].Cast(type),
                        grads[i].Cast(type),
                        rate.valid() ? rate.Cast(type) : builder_->Const(type, lr.value())});
    }
  }

  const std::vector<Item>& items() const { return items_; }

  // State of one parameter.
  Tensor StateOf(std::string_view what, const Item& item) {
    return State(StrCat(what, ".", item.name), item.p.dtype(), ToShape(item.p.shape()));
  }
  Tensor State(std::string_view what, DType dtype, const Shape& shape) {
    return builder_->State(dtype, shape, StrCat(name_, ".", what), Init::Constant(0));
  }
  // beta * state + (1 - beta) * value, stored.
  Tensor Average(const Tensor& state, double beta, const Tensor& value) {
    const Tensor now = state * beta + value * (1 - beta);
    builder_->Store(state, now);
    return now;
  }
  // The average of ones, which tells how much of a young average is its first value.
  Tensor Correction(std::string_view what, double beta) {
    const bool wide = std::ranges::any_of(
        items_, [](const Item& item) { return item.p.dtype() == DType::kFloat64; });
    const Tensor state = State(what, wide ? DType::kFloat64 : DType::kFloat32, {});
    return Average(state, beta, state.Like(1));
  }
  void Step(const Item& item, const Tensor& update) {
    builder_->Store(item.param, (item.p - update).Cast(item.param.dtype()));
  }
  Builder* builder() const { return builder_; }

 private:
  bool Check(std::span<const Tensor> params, std::span<const Tensor> grads) {
    if (params.size() != grads.size()) {
      builder_->Fail(InvalidArgument(name_, ": ", params.size(), " parameters and ", grads.size(),
                                     " gradients"));
      return false;
    }
    for (size_t i = 0; i < params.size(); ++i) {
      const Slot* slot = builder_->FindSlot(params[i]);
      if (slot == nullptr || slot->role != SlotRole::kState || !IsFloat(params[i].dtype())) {
        builder_->Fail(
            InvalidArgument(name_, ": parameter ", i, " is not a state slot of a float type"));
        return false;
      }
      if (!std::ranges::equal(params[i].shape(), grads[i].shape())) {
        builder_->Fail(InvalidArgument(name_, ": parameter '", slot->name, "' is ",
                                       ToString(params[i].shape()), ", its gradient ",
                                       ToString(grads[i].shape())));
        return false;
      }
    }
    return true;
  }

  Builder* builder_;
  std::string name_;
  std::vector<Item> items_;
};

Tensor Norm(const Tensor& x) { return (x * x).Sum().Sqrt(); }

// v = momentum * v + g, stored; what the step follows: v, or a look ahead along it.
Tensor Momentum(ParameterGroup* group, const Item& item, const Tensor& g, double momentum,
                bool nesterov) {
  if (momentum == 0) return g;
  const Tensor v = group->StateOf("v", item);
  const Tensor now = v * momentum + g;
  group->builder()->Store(v, now);
  return nesterov ? g + now * momentum : now;
}

// Adam's direction: the mean of the gradients over the root of the mean of their squares. `options`
// are of any of Adam's kin.
class Moments {
 public:
  Moments(ParameterGroup* group, const auto& options)
      : group_(group),
        beta1_(options.beta1),
        beta2_(options.beta2),
        eps_(options.eps),
        correction1_(group->Correction("correction1", options.beta1)),
        correction2_(group->Correction("correction2", options.beta2)) {}

  Tensor Direction(const Item& item, const Tensor& g) const {
    const DType type = g.dtype();
    const Tensor m = group_->Average(group_->StateOf("m", item), beta1_, g);
    const Tensor v = group_->Average(group_->StateOf("v", item), beta2_, g * g);
    const Tensor scale = (v / correction2_.Cast(type)).Sqrt() + eps_;
    return m / correction1_.Cast(type) / scale;
  }

 private:
  ParameterGroup* group_;
  double beta1_, beta2_, eps_;
  Tensor correction1_, correction2_;
};

// The matrix m, whose singular values a polynomial draws towards 1.
Tensor Orthogonal(const Tensor& m, int steps, const std::array<double, 3>& coefficients) {
  if (m.dim(0) > m.dim(1)) {
    return Orthogonal(m.Transpose(), steps, coefficients).Transpose();
  }
  const auto [a, b, c] = coefficients;
  Tensor x = m / (Norm(m) + 1e-7);
  for (int i = 0; i < steps; ++i) {
    const Tensor square = x.MatMul(x.Transpose());
    const Tensor cubed = square.MatMul(x);
    x = x * a + cubed * b + square.MatMul(cubed) * c;
  }
  return x;
}

}  // namespace

void Sgd(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
         const SgdOptions& options) {
  ParameterGroup group(builder, options.name, params, grads, options.lr);
  for (const Item& item : group.items()) {
    const Tensor g = options.weight_decay == 0 ? item.g : item.g + item.p * options.weight_decay;
    group.Step(item, Momentum(&group, item, g, options.momentum, options.nesterov) * item.lr);
  }
}

void Adam(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const AdamOptions& options) {
  ParameterGroup group(builder, options.name, params, grads, options.lr);
  if (group.items().empty()) return;
  const Moments moments(&group, options);
  for (const Item& item : group.items()) {
    const Tensor g = options.weight_decay == 0 ? item.g : item.g + item.p * options.weight_decay;
    group.Step(item, moments.Direction(item, g) * item.lr);
  }
}

void AdamW(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
           const AdamWOptions& options) {
  ParameterGroup group(builder, options.name, params, grads, options.lr);
  if (group.items().empty()) return;
  const Moments moments(&group, options);
  for (const Item& item : group.items()) {
    const Tensor direction = moments.Direction(item, item.g);
    group.Step(item, (direction + item.p * options.weight_decay) * item.lr);
  }
}

void Lamb(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const LambOptions& options) {
  ParameterGroup group(builder, options.name, params, grads, options.lr);
  if (group.items().empty()) return;
  const Moments moments(&group, options);
  for (const Item& item : group.items()) {
    const Tensor up = moments.Direction(item, item.g) + item.p * options.weight_decay;
    const Tensor of_p = Norm(item.p), of_up = Norm(up), zero = of_p.Like(0), one = of_p.Like(1);
    const Tensor trust = of_p.Gt(zero).And(of_up.Gt(zero)).Where(of_p / of_up, one);
    group.Step(item, up * (trust * item.lr));
  }
}

void Lars(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const LarsOptions& options) {
  ParameterGroup group(builder, options.name, params, grads, options.lr);
  for (const Item& item : group.items()) {
    Tensor rate = item.lr;
    if (options.trust != 0) {
      const Tensor of_p = Norm(item.p), of_g = Norm(item.g);
      const Tensor zero = of_p.Like(0), one = of_p.Like(1);
      const Tensor trust = of_p * options.trust / (of_g + of_p * options.weight_decay);
      rate = rate * of_p.Gt(zero).And(of_g.Gt(zero)).Where(trust, one);
    }
    Tensor g = item.g + item.p * options.weight_decay;
    if (options.classic) g = g * rate;
    Tensor update = Momentum(&group, item, g, options.momentum, options.nesterov);
    if (!options.classic) update = update * rate;
    group.Step(item, update);
  }
}

void Muon(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const MuonOptions& options) {
  ParameterGroup group(builder, options.name, params, grads, options.lr);
  for (const Item& item : group.items()) {
    if (item.p.rank() < 2 || item.p.size() == 0) {
      builder->Fail(InvalidArgument(options.name, ": parameter '", item.name, "' is ",
                                    ToString(item.p.shape()),
                                    ", expected a matrix or more axes; give it to another "
                                    "optimizer"));
      return;
    }
    const Tensor g = Momentum(&group, item, item.g, options.momentum, options.nesterov);
    const Tensor direction =
        Orthogonal(g.Reshape({g.dim(0), -1}), options.steps, options.coefficients)
            .Reshape(ToShape(item.p.shape()));
    group.Step(item, (direction + item.p * options.weight_decay) * item.lr);
  }
}

std::vector<Tensor> ClipByNorm(std::span<const Tensor> grads, double limit, Tensor* norm) {
  std::vector<Tensor> out(grads.begin(), grads.end());
  Tensor square;
  for (const Tensor& g : grads) {
    const Tensor wide = g.Cast(ComputeType(g.dtype()));
    const Tensor part = (wide * wide).Sum();
    square = square.valid() ? square + part.Cast(square.dtype()) : part;
  }
  if (!square.valid()) return out;
  const Tensor root = square.Sqrt();
  if (norm != nullptr) *norm = root;
  const Tensor scale = (limit / (root + 1e-6)).Minimum(1.0);
  for (Tensor& g : out) g = g * scale.Cast(g.dtype());
  return out;
}

std::vector<Tensor> ClipByValue(std::span<const Tensor> grads, double limit) {
  std::vector<Tensor> out(grads.begin(), grads.end());
  for (Tensor& g : out) g = g.Clamp(-limit, limit);
  return out;
}

}  // namespace telegrad::optim
