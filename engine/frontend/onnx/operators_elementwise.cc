// Elementwise operators. Tensor broadcasts as NumPy does, which is what ONNX means since opset 7.
#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/frontend/builder.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/shapes.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxScalarBytes = 8;

template <typename F>
absl::Status Binary(NodeContext& c, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor a, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor b, c.Input(1));
  return c.Output(f(a, b));
}

template <typename F>
absl::StatusOr<Tensor> FoldVariadic(NodeContext& c, F f) {
  TG_ASSIGN_OR_RETURN(Tensor out, c.Input(0));
  for (int i = 1; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(const Tensor next, c.Input(i));
    out = f(out, next);
  }
  return out;
}

template <typename F>
absl::Status Variadic(NodeContext& c, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor out, FoldVariadic(c, f));
  return c.Output(out);
}

Tensor Divide(const Tensor& a, const Tensor& b) { return IsInt(a.dtype()) ? a.TruncDiv(b) : a / b; }

}  // namespace

absl::Status AddOp(NodeContext& c) { return Binary(c, std::plus<>()); }
absl::Status SubOp(NodeContext& c) { return Binary(c, std::minus<>()); }
absl::Status MulOp(NodeContext& c) { return Binary(c, std::multiplies<>()); }
absl::Status DivOp(NodeContext& c) { return Binary(c, Divide); }
absl::Status AndOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::And)); }
absl::Status OrOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::Or)); }
absl::Status XorOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::Xor)); }
absl::Status EqualOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::Eq)); }
absl::Status LessOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::Lt)); }
absl::Status GreaterOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::Gt)); }
absl::Status LessOrEqualOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::Le)); }
absl::Status GreaterOrEqualOp(NodeContext& c) { return Binary(c, std::mem_fn(&Tensor::Ge)); }
absl::Status SumOp(NodeContext& c) { return Variadic(c, std::plus<>()); }
absl::Status MaxOp(NodeContext& c) { return Variadic(c, std::mem_fn(&Tensor::Maximum)); }
absl::Status MinOp(NodeContext& c) { return Variadic(c, std::mem_fn(&Tensor::Minimum)); }

absl::Status MeanOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor sum, FoldVariadic(c, std::plus<>()));
  return c.Output(sum / static_cast<double>(c.num_inputs()));
}

absl::Status WhereOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor condition, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor yes, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor no, c.Input(2));
  return c.Output(condition.Where(yes, no));
}

// The result has the base's type, whatever the exponent's is.
absl::Status PowOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const HostTensor* known, c.Known(1, kMaxScalarBytes));
  if (known != nullptr && NumElements(known->shape) == 1 &&
      static_cast<int64_t>(known->shape.size()) <= x.rank()) {
    const double exponent = known->AsDoubles()[0];
    const bool whole =
        IsInt(x.dtype()) && exponent == std::floor(exponent) && std::abs(exponent) < 0x1p53;
    const Tensor power = whole ? x.Pow(static_cast<int64_t>(exponent)) : x.Pow(exponent);
    return c.Output(power.Cast(x.dtype()));
  }
  TG_ASSIGN_OR_RETURN(const Tensor exponent, c.Input(1));
  const Tensor power = x.Pow(IsFloat(x.dtype()) ? exponent.Cast(x.dtype()) : exponent);
  return c.Output(power.Cast(x.dtype()));
}

// The remainder has the sign of the divisor, or with `fmod` that of the dividend.
absl::Status ModOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const int64_t fmod, c.Int("fmod", 0));
  return Binary(c, std::mem_fn(fmod != 0 ? &Tensor::TruncMod : &Tensor::FloorMod));
}

absl::Status GeluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const std::string_view approximate, c.String("approximate", "none"));
  if (approximate == "none") return c.Output(x.Gelu());
  if (approximate == "tanh") return c.Output(x.GeluTanh());
  return InvalidArgument("'approximate' is '", approximate, "'");
}

// The bounds are attributes before opset 11, inputs from then on; either may be left out.
absl::Status ClipOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.opset() < 11 ? c.FloatInput(0) : c.Input(0));
  for (const int side : {1, 2}) {
    const std::string_view name = side == 1 ? "min" : "max";
    Tensor bound;
    if (c.opset() < 11) {
      if (c.HasInput(side)) return InvalidArgument("input ", side, " exists only since opset 11");
      if (!c.HasAttribute(name)) continue;
      TG_ASSIGN_OR_RETURN(const float value, c.Float(name, 0));
      bound = x.Like(value);
    } else {
      if (!c.HasInput(side)) continue;
      TG_ASSIGN_OR_RETURN(bound, c.Input(side));
      if (bound.rank() != 0) return InvalidArgument("'", name, "' is not a scalar");
    }
    x = side == 1 ? x.Maximum(bound) : x.Minimum(bound);
  }
  return c.Output(x);
}

absl::Status CastOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Attribute* to, c.Required("to", AttributeType::kInt));
  c.Ignore("saturate");  // it concerns 8-bit floats only
  const auto dtype =
      to->i >= 1 && to->i <= 1000 ? DTypeFromOnnx(static_cast<int>(to->i)) : std::nullopt;
  if (!dtype) return Unimplemented("element type ", to->i, " is not supported");
  return c.Output(x.Cast(*dtype));
}

absl::Status CastLikeOp(NodeContext& c) {
  c.Ignore("saturate");
  return Binary(c, [](const Tensor& x, const Tensor& like) { return x.Cast(like.dtype()); });
}

absl::Status LeakyReluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 0.01f));
  return c.Output(x.LeakyRelu(alpha));
}

// At inference the identity; the mask, which exporters often list without using it, is all true.
absl::Status DropoutOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  c.Ignore("ratio");
  c.Ignore("seed");
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const double training, c.Number(2));
    if (training != 0)
      return Unimplemented("training mode is not supported; export the model for inference");
  }
  const Shape shape = ToShape(x.shape());
  TG_RETURN_IF_ERROR(c.Output(x));
  return c.Output(c.builder().Full(c.opset() < 10 ? x.dtype() : DType::kBool, shape, 1));
}

}  // namespace telegrad::onnx
