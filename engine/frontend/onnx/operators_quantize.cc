// Quantization: y = saturate(round(x / scale) + zero point), halves rounded to even.
#include <algorithm>
#include <cmath>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/ir/scalar.h"

namespace telegrad::onnx {
namespace {

// Where the scales of a tensor apply: to all of it, to places on an axis, or to blocks along it.
struct Granularity {
  int64_t axis = 0, block = 0;
};

absl::StatusOr<Granularity> ReadGranularity(NodeContext& c, const Tensor& x, const Tensor& scale) {
  Granularity out;
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", 1));
  TG_ASSIGN_OR_RETURN(out.block, c.Int("block_size", 0));
  if (out.block < 0) return InvalidArgument("'block_size' is ", out.block);
  if (scale.size() == 1 && out.block == 0) return out;
  TG_ASSIGN_OR_RETURN(out.axis, ResolveAxis("quantize", axis, x.rank()));
  return out;
}

// A scale or zero point broadcast to x's axes.
absl::StatusOr<Tensor> PlaceScale(const Tensor& given, const Tensor& x, const Granularity& g) {
  const Tensor t = Readable(given);
  if (g.block > 0 && t.rank() == x.rank()) {
    const int64_t n = x.dim(g.axis), blocks = t.dim(g.axis);
    if (blocks != CeilDiv(n, g.block)) {
      return InvalidArgument(blocks, " blocks of ", g.block, " for an axis of ", n);
    }
    return t.RepeatInterleave(std::min(g.block, n), g.axis).Slice(g.axis, 0, n);
  }
  if (t.size() == 1) return t.Reshape(Shape{});
  if (t.rank() == 1 && t.dim(0) == x.dim(g.axis)) return AlongAxis(t, g.axis, x.rank());
  return InvalidArgument("a scale or zero point of shape ", ToString(t.shape()), " for shape ",
                         ToString(x.shape()), " and axis ", g.axis);
}

// Whether the input is known to be zeros: what is less them is itself.
absl::StatusOr<bool> IsZeros(NodeContext& c, int i) {
  constexpr int64_t kMostBytes = 1 << 20;
  TG_ASSIGN_OR_RETURN(const HostTensor* known, c.Known(i, kMostBytes));
  return known != nullptr && std::ranges::all_of(known->bytes, [](auto byte) { return byte == 0; });
}

// x / scale + zero in the type; without a scale it is 1.
Tensor Quantized(const Tensor& x, const Tensor& scale, const Tensor& zero, DType to,
                 const CastRules& rules) {
  if (!IsFloat(to)) return RoundInto(x, scale, zero, to);
  const Tensor quotient = scale.valid() ? x / scale : x;
  const Tensor wide = quotient.Cast(ComposedType(quotient.dtype()));
  return CastTo(zero.valid() ? wide + zero.Cast(wide.dtype()) : wide, to, rules);
}

// Elements less the zero point of input `zero`, exactly: integers in i32, 8-bit floats in f32. The
// zero points are one, or one for each row, or for each column of a matrix.
absl::StatusOr<Tensor> Centered(NodeContext& c, int i, int zero, bool by_row) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(i));
  const DType exact = IsFloat(x.dtype()) ? DType::kFloat32 : DType::kInt32;
  x = Readable(x).Cast(exact);
  if (!c.HasInput(zero)) return x;
  TG_ASSIGN_OR_RETURN(const bool zeros, IsZeros(c, zero));
  if (zeros) return x;
  TG_ASSIGN_OR_RETURN(Tensor point, c.Input(zero));
  point = Readable(point).Cast(exact);
  if (point.size() == 1) point = point.Reshape(Shape{});
  if (by_row && point.rank() == 1 && x.rank() > 1) point = point.Unsqueeze(1);
  return x - point;
}

// The scale of a matrix's rows or columns.
absl::StatusOr<Tensor> MatrixScale(NodeContext& c, int i, bool by_row) {
  TG_ASSIGN_OR_RETURN(Tensor scale, c.FloatInput(i));
  scale = scale.Cast(DType::kFloat32);
  if (scale.size() == 1) return scale.Reshape(Shape{});
  return by_row && scale.rank() == 1 ? scale.Unsqueeze(1) : scale;
}

// Of sums of products: scaled to the result, whose scale is input `scale` and whose zero point and
// type are the input after it. In f32, as ONNX Runtime does it: where f64 would be next to a half,
// the results may differ by one.
absl::Status Requantize(NodeContext& c, const Tensor& sums, const Tensor& factor, int scale) {
  TG_ASSIGN_OR_RETURN(const Tensor to, c.FloatInput(scale));
  TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(scale + 1));
  const Tensor ratio = factor / to.Cast(DType::kFloat32).Reshape(Shape{});
  const Tensor quotient = sums.Cast(DType::kFloat32) * ratio;
  const Tensor point = zero.size() == 1 ? Readable(zero).Reshape(Shape{}) : Readable(zero);
  return c.Output(Quantized(quotient, {}, point, zero.dtype(), {}));
}

// The word of an integer that is known.
std::optional<int64_t> KnownInteger(UOp u) {
  while (u.is(Op::kCast) && IsInt(u.dtype()) && IsInt(u.src(0).dtype())) u = u.src(0);
  return u.is_const() && IsInt(u.dtype()) ? std::optional(u.const_word()) : std::nullopt;
}

// Whether quantizing gives back what x was dequantized from: (q - z) s, rounded, is less than half
// of s away from the product.
bool GivesBack(const Dequantized& x, const Tensor& scale, const Tensor& zero, DType to) {
  constexpr double kLeast = 0x1p-60, kMost = 0x1p60;  // nothing vanishes or overflows
  const UOp known = scale.uop();
  if (to != x.whole.dtype() || scale.dtype() != DType::kFloat32 || !known.is_const()) return false;
  const double s = ScalarAsDouble(DType::kFloat32, known.const_word());
  const std::optional<int64_t> point = zero.valid() ? KnownInteger(zero.uop()) : 0;
  return s == static_cast<double>(x.scale) && s > kLeast && s < kMost && point == x.zero;
}

}  // namespace

Tensor Dequantized::Of(const Tensor& other) const {
  Tensor x = other.Cast(DType::kInt32);
  if (zero != 0) x = x - zero;
  return x.Cast(DType::kFloat32) * static_cast<double>(scale);
}

constexpr int64_t kFarthestZero = 1 << 16;

std::optional<Dequantized> DequantizedOf(const Tensor& x) {
  UOp u = x.uop();
  if (!u.valid() || !u.is(Op::kMul) || u.dtype() != DType::kFloat32 || !u.src(1).is_const()) {
    return std::nullopt;
  }
  Dequantized out;
  out.scale = static_cast<float>(ScalarAsDouble(DType::kFloat32, u.src(1).const_word()));
  const auto widened = [&u](DType to) {
    if (!u.is(Op::kCast) || u.dtype() != to || !IsInt(u.src(0).dtype())) return false;
    u = u.src(0);
    return true;
  };
  u = u.src(0);
  if (!(out.scale > 0) || !std::isfinite(out.scale) || !widened(DType::kFloat32)) {
    return std::nullopt;
  }
  if (u.is(Op::kSub)) {
    const std::optional<int64_t> zero = KnownInteger(u.src(1));
    // Farther away the difference may wrap around, and the largest would be another one.
    if (!zero || *zero < -kFarthestZero || *zero > kFarthestZero) return std::nullopt;
    out.zero = *zero;
    u = u.src(0);
  }
  if (!widened(DType::kInt32) || Info(u.dtype()).bits > 16 || IsPacked(u.dtype())) {
    return std::nullopt;
  }
  out.whole = Tensor(x.builder(), u);
  return out;
}

absl::Status QuantizeLinearOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Granularity g, ReadGranularity(c, x, scale));
  TG_ASSIGN_OR_RETURN(const Tensor placed, PlaceScale(scale, x, g));
  TG_ASSIGN_OR_RETURN(const int64_t saturate, c.Int("saturate", 1));
  TG_ASSIGN_OR_RETURN(const int64_t declared, c.Int("output_dtype", 0));
  TG_ASSIGN_OR_RETURN(const int64_t precision, c.Int("precision", 0));
  DType to = DType::kUInt8;
  if (declared != 0) {
    TG_ASSIGN_OR_RETURN(to, TypeOf(declared));
  }
  Tensor zero;
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(zero, c.Input(2));
    if (declared != 0 && to != zero.dtype()) {
      return InvalidArgument("'output_dtype' is ", Name(to), ", the zero point ",
                             Name(zero.dtype()));
    }
    to = zero.dtype();
    TG_ASSIGN_OR_RETURN(zero, PlaceScale(zero, x, g));
  }
  DType divide = IsFloat(placed.dtype()) ? placed.dtype() : DType::kFloat32;
  if (precision != 0) {
    TG_ASSIGN_OR_RETURN(divide, TypeOf(precision));
    if (!IsFloat(divide)) return InvalidArgument("'precision' is ", Name(divide));
  }
  const std::optional<Dequantized> from = DequantizedOf(x);
  const bool back = from && GivesBack(*from, placed.Cast(divide), zero, to);
  const Tensor out =
      back ? from->whole
           : Quantized(x.Cast(divide), placed.Cast(divide), zero, to, {.saturate = saturate != 0});
  // Few bits are cheap to store. Without this, chains of quantized layers become one kernel each
  // time somebody reads them, of which lowering takes minutes.
  const bool in_memory = out.valid() && (out.uop().is(Op::kContiguous) || out.uop().is(Op::kParam));
  const bool stored = x.size() > 1 && IsInt(to) && !IsPacked(to) && !in_memory;
  return c.Output(stored ? out.Contiguous() : out);
}

absl::Status DequantizeLinearOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor given, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t declared, c.Int("output_dtype", 0));
  DType to = IsStorage(scale.dtype()) ? DType::kFloat32 : scale.dtype();
  if (declared != 0) {
    TG_ASSIGN_OR_RETURN(to, TypeOf(declared));
  }
  if (!IsFloat(to)) return InvalidArgument("the result is of type ", Name(to));
  Tensor x = Readable(given);
  x = x.Cast(IsFloat(x.dtype()) ? DType::kFloat32 : DType::kInt32);
  TG_ASSIGN_OR_RETURN(const Granularity g, ReadGranularity(c, x, scale));
  TG_ASSIGN_OR_RETURN(const Tensor placed, PlaceScale(scale, x, g));
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(Tensor zero, c.Input(2));
    TG_ASSIGN_OR_RETURN(zero, PlaceScale(zero, x, g));
    TG_ASSIGN_OR_RETURN(const bool zeros, IsZeros(c, 2));
    if (!zeros) x = x - zero.Cast(x.dtype());
  }
  const Tensor out = x.Cast(to) * placed.Cast(to);
  // What takes no less memory as integers, as a bias does, is computed once.
  constexpr int64_t kMostElements = 1 << 16;
  if (given.dtype() == DType::kInt32 && out.valid() && out.dims().is_static() &&
      out.size() <= kMostElements) {
    const ValueRef value = Values::FromTensor(out);
    TG_ASSIGN_OR_RETURN(const HostTensor* known,
                        c.values().ToHost(value.get(), Effort::kConstants));
    if (known != nullptr) return c.OutputKnown(*known);
  }
  return c.Output(out);
}

// The scale and zero point of u8 come from the least and largest element, 0 among them.
absl::Status DynamicQuantizeLinearOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  const Tensor low = x.Min().Minimum(0), high = x.Max().Maximum(0);
  const Tensor range = (high - low) / 255;
  // Of zeros alone the scale is 0 and the zero point 0.
  const Tensor scale = range.Eq(0).Where(1, range);
  const Tensor zero = RoundedWithin(0 - low / scale, 0, 255).Cast(DType::kUInt8);
  TG_RETURN_IF_ERROR(c.Output(RoundInto(x, scale, zero, DType::kUInt8)));
  TG_RETURN_IF_ERROR(c.Output(range));
  return c.Output(zero);
}

absl::Status MatMulIntegerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor a, Centered(c, 0, 2, true));
  TG_ASSIGN_OR_RETURN(const Tensor b, Centered(c, 1, 3, false));
  return c.Output(a.MatMul(b));
}

absl::Status QLinearMatMulOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor a, Centered(c, 0, 2, true));
  TG_ASSIGN_OR_RETURN(const Tensor b, Centered(c, 3, 5, false));
  TG_ASSIGN_OR_RETURN(const Tensor a_scale, MatrixScale(c, 1, true));
  TG_ASSIGN_OR_RETURN(const Tensor b_scale, MatrixScale(c, 4, false));
  return Requantize(c, a.MatMul(b), a_scale * b_scale, 6);
}

absl::Status ConvIntegerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Centered(c, 0, 2, false));
  TG_ASSIGN_OR_RETURN(Tensor w, c.Input(1));
  w = w.Cast(DType::kInt32);
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(3));
    TG_ASSIGN_OR_RETURN(const Tensor placed, PlaceScale(zero, w, {}));
    TG_ASSIGN_OR_RETURN(const bool zeros, IsZeros(c, 3));
    if (!zeros) w = w - placed.Cast(DType::kInt32);
  }
  TG_ASSIGN_OR_RETURN(const Tensor sums, ConvByAttributes(c, x, w));
  return c.Output(sums);
}

// The bias has the scale x_scale w_scale and no zero point.
absl::Status QLinearConvOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Centered(c, 0, 2, false));
  TG_ASSIGN_OR_RETURN(Tensor w, c.Input(3));
  TG_ASSIGN_OR_RETURN(const Tensor x_scale, MatrixScale(c, 1, false));
  TG_ASSIGN_OR_RETURN(Tensor w_scale, c.FloatInput(4));
  TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(5));
  w = w.Cast(DType::kInt32);
  TG_ASSIGN_OR_RETURN(const Tensor placed, PlaceScale(zero, w, {}));
  TG_ASSIGN_OR_RETURN(const bool zeros, IsZeros(c, 5));
  if (!zeros) w = w - placed.Cast(DType::kInt32);
  TG_ASSIGN_OR_RETURN(Tensor sums, ConvByAttributes(c, x, w));
  if (c.HasInput(8)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.Input(8));
    sums = sums + AlongAxis(bias, 1, sums.rank());
  }
  w_scale = w_scale.Cast(DType::kFloat32);
  w_scale = w_scale.size() == 1 ? w_scale.Reshape(Shape{}) : AlongAxis(w_scale, 1, sums.rank());
  return Requantize(c, sums, x_scale * w_scale, 6);
}

}  // namespace telegrad::onnx
