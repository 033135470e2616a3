// Elementwise operators. Tensor broadcasts as NumPy does, which is what ONNX means since opset 7.
#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxScalarBytes = 8;

// Before opset 7 the second operand broadcasts only where `broadcast` says so, and its axes are
// those of the first from `axis` on.
absl::StatusOr<Tensor> SecondOperand(NodeContext& c, const Tensor& a) {
  TG_ASSIGN_OR_RETURN(Tensor b, c.Input(1));
  if (c.opset() >= 7) return b;
  TG_ASSIGN_OR_RETURN(const int64_t broadcast, c.Int("broadcast", 0));
  TG_ASSIGN_OR_RETURN(int64_t axis, c.Int("axis", a.rank() - b.rank()));
  if (broadcast == 0) {
    if (std::ranges::equal(a.shape(), b.shape())) return b;
    return InvalidArgument("shapes ", ToString(a.shape()), " and ", ToString(b.shape()),
                           " without 'broadcast'; expected equal ones");
  }
  if (axis < 0) axis += a.rank();
  if (axis < 0 || axis + b.rank() > a.rank()) {
    return InvalidArgument("'axis' ", axis, " for shapes ", ToString(a.shape()), " and ",
                           ToString(b.shape()));
  }
  Shape shape = ToShape(b.shape());
  shape.resize(static_cast<size_t>(a.rank() - axis), 1);
  return b.Reshape(shape);
}

template <typename F>
absl::Status Binary(NodeContext& c, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor a, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor b, SecondOperand(c, a));
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
  if (known != nullptr && NumElements(known->shape) == 1 && c.opset() >= 7 &&
      static_cast<int64_t>(known->shape.size()) <= x.rank()) {
    const double exponent = known->AsDoubles()[0];
    const bool whole =
        IsInt(x.dtype()) && exponent == std::floor(exponent) && std::abs(exponent) < 0x1p53;
    const Tensor power = whole ? x.Pow(static_cast<int64_t>(exponent)) : x.Pow(exponent);
    return c.Output(power.Cast(x.dtype()));
  }
  TG_ASSIGN_OR_RETURN(const Tensor exponent, SecondOperand(c, x));
  const Tensor power = x.Pow(IsFloat(x.dtype()) ? exponent.Cast(x.dtype()) : exponent);
  return c.Output(power.Cast(x.dtype()));
}

// The remainder has the sign of the divisor, or with `fmod` that of the dividend.
absl::Status ModOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const int64_t fmod, c.Int("fmod", 0));
  return Binary(c, std::mem_fn(fmod != 0 ? &Tensor::TruncMod : &Tensor::FloorMod));
}

absl::Status BitShiftOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Attribute* direction, c.Required("direction", AttributeType::kString));
  if (direction->s != "LEFT" && direction->s != "RIGHT") {
    return InvalidArgument("'direction' is '", direction->s, "', expected LEFT or RIGHT");
  }
  return Binary(c, std::mem_fn(direction->s == "LEFT" ? &Tensor::ShiftLeft : &Tensor::ShiftRight));
}

absl::Status IsInfOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const int64_t positive, c.Int("detect_positive", 1));
  TG_ASSIGN_OR_RETURN(const int64_t negative, c.Int("detect_negative", 1));
  return c.Output(Readable(x).IsInf(positive != 0, negative != 0));
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
      if (bound.size() != 1 || !bound.dims().is_static())
        return InvalidArgument("'", name, "' is not a scalar");
      bound = bound.Reshape(Shape{});
    }
    x = side == 1 ? x.Maximum(bound) : x.Minimum(bound);
  }
  return c.Output(x);
}

}  // namespace telegrad::onnx
