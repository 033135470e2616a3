#include "engine/frontend/optim.h"

#include "engine/base/status.h"
#include "engine/frontend/shapes.h"

namespace telegrad::optim {
namespace {

// The slots of the params, or false after recording an error.
bool Check(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads) {
  bool ok = params.size() == grads.size();
  for (const Tensor& p : params) {
    ok = ok && builder->FindSlot(p) != nullptr && IsFloat(p.dtype());
  }
  if (!ok) {
    builder->Fail(InvalidArgument("optimizer: expects float state slots and a gradient for each"));
  }
  return ok;
}

Tensor StateLike(Builder* builder, std::string_view prefix, const Tensor& param) {
  const std::string name = StrCat(prefix, builder->FindSlot(param)->name);
  return builder->State(param.dtype(), ToShape(param.shape()), name, Init::Constant(0));
}

}  // namespace

void Sgd(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
         const SgdOptions& options) {
  if (!Check(builder, params, grads)) return;
  for (size_t i = 0; i < params.size(); ++i) {
    Tensor step = grads[i];
    if (options.momentum != 0) {
      const Tensor v = StateLike(builder, "sgd.v.", params[i]);
      step = v * options.momentum + step;
      builder->Store(v, step);
    }
    builder->Store(params[i], params[i] - step * options.lr);
  }
}

void Adam(Builder* builder, std::span<const Tensor> params, std::span<const Tensor> grads,
          const AdamOptions& options) {
  if (!Check(builder, params, grads) || params.empty()) return;
  const DType dtype = params[0].dtype();
  const auto power = [&](std::string_view name, double beta) {
    const Tensor before = builder->State(dtype, {}, name, Init::Constant(1));
    const Tensor now = before * beta;
    builder->Store(before, now);
    return now;
  };
  const Tensor correct1 = 1.0 - power("adam.beta1_power", options.beta1);
  const Tensor correct2 = 1.0 - power("adam.beta2_power", options.beta2);
  for (size_t i = 0; i < params.size(); ++i) {
    const Tensor& g = grads[i];
    const Tensor m = StateLike(builder, "adam.m.", params[i]);
    const Tensor v = StateLike(builder, "adam.v.", params[i]);
    const Tensor new_m = m * options.beta1 + g * (1 - options.beta1);
    const Tensor new_v = v * options.beta2 + g * g * (1 - options.beta2);
    builder->Store(m, new_m);
    builder->Store(v, new_v);
    const Tensor scale = (new_v / correct2).Sqrt() + options.eps;
    builder->Store(params[i], params[i] - new_m / correct1 * options.lr / scale);
  }
}

}  // namespace telegrad::optim
