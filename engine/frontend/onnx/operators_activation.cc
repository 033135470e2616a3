// Activations: functions of one element and of attributes.
#include <numbers>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// f(x, alpha) of floats, computed in f32 or more and rounded once.
template <typename F>
absl::Status WithAlpha(NodeContext& c, float otherwise, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", otherwise));
  return c.Output(Composed(x, [&](const Tensor& t) { return f(t, alpha); }));
}

Tensor SwishOf(const Tensor& x, float alpha) { return x * (x * alpha).Sigmoid(); }

}  // namespace

absl::Status EluOp(NodeContext& c) {
  return WithAlpha(c, 1, [](const Tensor& x, float alpha) {
    return x.Lt(0).Where(x.Minimum(0).Expm1() * alpha, x);
  });
}

// max(0, x) + min(0, alpha (exp(x / alpha) - 1)).
absl::Status CeluOp(NodeContext& c) {
  return WithAlpha(c, 1, [](const Tensor& x, float alpha) {
    return x.Maximum(0) + ((x / alpha).Expm1() * alpha).Minimum(0);
  });
}

absl::Status SeluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const float gamma, c.Float("gamma", 1.05070102214813232421875f));
  return WithAlpha(c, 1.67326319217681884765625f, [&](const Tensor& x, float alpha) {
    return x.Lt(0).Where(x.Minimum(0).Expm1() * alpha, x) * gamma;
  });
}

absl::Status LeakyReluOp(NodeContext& c) {
  return WithAlpha(c, 0.01f, [](const Tensor& x, float alpha) { return x.LeakyRelu(alpha); });
}

absl::Status ThresholdedReluOp(NodeContext& c) {
  return WithAlpha(c, 1, [](const Tensor& x, float alpha) { return x.Gt(alpha).Where(x, 0.0); });
}

absl::Status SwishOp(NodeContext& c) { return WithAlpha(c, 1, SwishOf); }

absl::Status SwiGluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor value, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Tensor gate, c.FloatInput(0));
  if (gate.dims() != value.dims()) {
    return InvalidArgument("the inputs have shapes ", ToString(gate.shape()), " and ",
                           ToString(value.shape()), ", expected equal ones");
  }
  return WithAlpha(c, 1, [&](const Tensor& x, float alpha) {
    return SwishOf(x, alpha) * value.Cast(x.dtype());
  });
}

absl::Status SoftplusOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  return c.Output(x.Softplus());
}

absl::Status HardSigmoidOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const float beta, c.Float("beta", 0.5f));
  return WithAlpha(c, 0.2f, [&](const Tensor& x, float alpha) {
    return (x * alpha + beta).Minimum(1).Maximum(0);
  });
}

absl::Status GeluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const std::string_view approximate, c.String("approximate", "none"));
  if (approximate == "none") return c.Output(x.Gelu());
  if (approximate == "tanh") return c.Output(x.GeluTanh());
  return InvalidArgument("'approximate' is '", approximate, "', expected none or tanh");
}

// Integers too: x - bias above lambd, x + bias below -lambd, else 0.
absl::Status ShrinkOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const float bias, c.Float("bias", 0));
  TG_ASSIGN_OR_RETURN(const float lambd, c.Float("lambd", 0.5f));
  const Tensor wide = x.Cast(ComposedType(x.dtype()));
  const Tensor out = wide.Lt(-lambd).Where(wide + bias, wide.Gt(lambd).Where(wide - bias, 0.0));
  return c.Output(out.Cast(x.dtype()));
}

// The slope broadcasts to x; before opset 7 one of several elements is that of the channels.
absl::Status PReluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Tensor slope, c.Input(1));
  const bool of_channels = c.opset() < 7 && slope.rank() == 1 && slope.size() > 1 && x.rank() > 1;
  if (of_channels) slope = AlongAxis(slope, 1, x.rank());
  return c.Output(x.Lt(0).Where(x * slope.Expand(x.dims()), x));
}

}  // namespace telegrad::onnx
