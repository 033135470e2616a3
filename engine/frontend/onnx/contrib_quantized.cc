// com.microsoft's quantized operators: integers of 8 bits with a scale and a zero point each, and
// matrices whose elements have few bits.
#include <algorithm>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::onnx {
namespace {

Tensor Scalar(const Tensor& x) { return x.size() == 1 ? x.Reshape(Shape{}) : x; }

// scale (x - zero point) in f32, from three inputs from `i` on.
absl::StatusOr<Tensor> DequantizedInput(NodeContext& c, int i) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(i));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.FloatInput(i + 1));
  Tensor whole = x.Cast(DType::kInt32);
  if (c.HasInput(i + 2)) {
    TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(i + 2));
    whole = whole - Scalar(zero.Cast(DType::kInt32));
  }
  return whole.Cast(DType::kFloat32) * Scalar(scale);
}

// Of f32, with the scale and zero point of the inputs from `i` on; the result has x's type where
// the zero point is left out.
absl::StatusOr<Tensor> QuantizedTo(NodeContext& c, const Tensor& x, int i, DType otherwise) {
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.FloatInput(i));
  Tensor zero;
  if (c.HasInput(i + 1)) {
    TG_ASSIGN_OR_RETURN(zero, c.Input(i + 1));
    zero = Scalar(zero);
  }
  return RoundInto(x, Scalar(scale), zero, zero.valid() ? zero.dtype() : otherwise);
}

template <typename F>
absl::Status QuantizedBinary(NodeContext& c, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor a, DequantizedInput(c, 0));
  TG_ASSIGN_OR_RETURN(const Tensor b, DequantizedInput(c, 3));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor out, QuantizedTo(c, f(a, b), 6, like.dtype()));
  return c.Output(out);
}

template <typename F>
absl::Status QuantizedUnary(NodeContext& c, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor x, DequantizedInput(c, 0));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor out, QuantizedTo(c, f(x), 3, like.dtype()));
  return c.Output(out);
}

}  // namespace

Tensor Unpacked(const Tensor& bytes, int64_t bits) {
  if (bits == 8) return bytes.Cast(DType::kInt32);
  std::vector<Tensor> parts;
  for (int64_t shift = 0; shift < 8; shift += bits) {
    parts.push_back(bytes.ShiftRight(shift).And((int64_t{1} << bits) - 1));
  }
  return Stack(parts, -1).Flatten(-2, -1).Cast(DType::kInt32);
}

// In units of the result, as ONNX Runtime computes it: each element times the ratio of two scales,
// plus all three zero points as one number, rounded once.
absl::Status QLinearAddOp(NodeContext& c) {
  const auto number = [&c](int i) -> absl::StatusOr<Tensor> {
    TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(i));
    return Scalar(x.Cast(DType::kFloat32));
  };
  TG_ASSIGN_OR_RETURN(const Tensor to, number(6));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(0));
  DType type = like.dtype();
  Tensor x[2], ratio[2], sum = to.Like(0);
  if (c.HasInput(7)) {
    TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(7));
    TG_ASSIGN_OR_RETURN(sum, number(7));
    type = zero.dtype();
  }
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(x[i], c.Input(3 * i));
    TG_ASSIGN_OR_RETURN(const Tensor scale, number(3 * i + 1));
    x[i] = x[i].Cast(DType::kInt32).Cast(DType::kFloat32);
    ratio[i] = scale / to;
    if (!c.HasInput(3 * i + 2)) continue;
    TG_ASSIGN_OR_RETURN(const Tensor zero, number(3 * i + 2));
    sum = sum - ratio[i] * zero;
  }
  TG_ASSIGN_OR_RETURN(const Dims dims, Broadcast("qlinear_add", x[0].dims(), x[1].dims()));
  sum = sum.Expand(dims);
  for (int i = 0; i < 2; ++i) sum = MulAcc(x[i].Expand(dims), ratio[i].Expand(dims), sum);
  return c.Output(RoundInto(sum, {}, {}, type));
}
absl::Status QLinearMulOp(NodeContext& c) {
  return QuantizedBinary(c, [](const Tensor& a, const Tensor& b) { return a * b; });
}
absl::Status QLinearSigmoidOp(NodeContext& c) {
  return QuantizedUnary(c, [](const Tensor& x) { return x.Sigmoid(); });
}
absl::Status QLinearLeakyReluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 0.01f));
  return QuantizedUnary(c, [&](const Tensor& x) { return x.LeakyRelu(alpha); });
}

absl::Status QLinearGlobalAveragePoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const int64_t last, c.Int("channels_last", 0));
  return QuantizedUnary(c, [&](const Tensor& x) {
    Axes axes;
    for (int64_t i = last != 0 ? 1 : 2; i < x.rank() - (last != 0 ? 1 : 0); ++i) axes.push_back(i);
    return x.Mean(axes, true);
  });
}

absl::Status QLinearAveragePoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const int64_t last, c.Int("channels_last", 0));
  TG_ASSIGN_OR_RETURN(const Tensor given, DequantizedInput(c, 0));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(0));
  if (given.rank() < 3) return InvalidArgument("the input has shape ", ToString(given.shape()));
  TG_ASSIGN_OR_RETURN(Tensor out,
                      AveragePoolByAttributes(c, last != 0 ? given.MoveAxis(-1, 1) : given));
  TG_ASSIGN_OR_RETURN(out, QuantizedTo(c, last != 0 ? out.MoveAxis(1, -1) : out, 3, like.dtype()));
  return c.Output(out);
}

absl::Status QLinearReduceMeanOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, DequantizedInput(c, 0));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(0));
  TG_ASSIGN_OR_RETURN(Axes axes, c.Ints("axes", AllAxes(x.rank())));
  TG_ASSIGN_OR_RETURN(const int64_t keep, c.Int("keepdims", 1));
  TG_ASSIGN_OR_RETURN(const Tensor out, QuantizedTo(c, x.Mean(axes, keep != 0), 3, like.dtype()));
  return c.Output(out);
}

// `opset` is that of Softmax: before 13 all axes from `axis` on are one.
absl::Status QLinearSoftmaxOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, DequantizedInput(c, 0));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t opset, c.Int("opset", 13));
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", opset < 13 ? 1 : -1));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("softmax", given, x.rank()));
  const Tensor scores =
      opset < 13 ? x.Flatten(axis, -1).Softmax(-1).Reshape(ToShape(x.shape())) : x.Softmax(axis);
  TG_ASSIGN_OR_RETURN(const Tensor out, QuantizedTo(c, scores, 3, like.dtype()));
  return c.Output(out);
}

absl::Status QLinearWhereOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor condition, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor yes, DequantizedInput(c, 1));
  TG_ASSIGN_OR_RETURN(const Tensor no, DequantizedInput(c, 4));
  TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor out, QuantizedTo(c, condition.Where(yes, no), 7, like.dtype()));
  return c.Output(out);
}

// alpha A B + C, where C is of integers with the scale of the product; floats without a scale of
// the result.
absl::Status QGemmOp(NodeContext& c) {
  Tensor x[2], scale[2];
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(x[i], c.Input(3 * i));
    TG_ASSIGN_OR_RETURN(scale[i], c.FloatInput(3 * i + 1));
    TG_ASSIGN_OR_RETURN(const int64_t turned, c.Int(i == 0 ? "transA" : "transB", 0));
    x[i] = x[i].Cast(DType::kInt32);
    if (x[i].rank() != 2) return InvalidArgument("a matrix has shape ", ToString(x[i].shape()));
    if (turned != 0) x[i] = x[i].Transpose();
    if (!c.HasInput(3 * i + 2)) continue;
    TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(3 * i + 2));
    x[i] = x[i] - Scalar(zero.Cast(DType::kInt32));
  }
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 1));
  Tensor whole = x[0].MatMul(x[1]);
  if (c.HasInput(6)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.Input(6));
    whole = whole + bias.Cast(DType::kInt32);
  }
  Tensor out = whole.Cast(DType::kFloat32) *
               (Scalar(scale[0]) * Scalar(scale[1]) * static_cast<double>(alpha));
  if (c.HasInput(7)) {
    TG_ASSIGN_OR_RETURN(const Tensor like, c.Input(0));
    TG_ASSIGN_OR_RETURN(out, QuantizedTo(c, out, 7, like.dtype()));
  }
  return c.Output(out);
}

// The scale and zero point of the result, then each part with its own.
absl::Status QLinearConcatOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Attribute* axis, c.Required("axis", AttributeType::kInt));
  if (c.num_inputs() % 3 != 2) return InvalidArgument("has ", c.num_inputs(), " inputs");
  std::vector<Tensor> parts;
  for (int i = 2; i < c.num_inputs(); i += 3) {
    TG_ASSIGN_OR_RETURN(const Tensor part, DequantizedInput(c, i));
    parts.push_back(part);
  }
  TG_ASSIGN_OR_RETURN(const Tensor out, QuantizedTo(c, Concat(parts, axis->i), 0, DType::kUInt8));
  return c.Output(out);
}

// A (f32) quantized to u8 by its own range, times B (8 bits), with a bias of floats.
absl::Status DynamicQuantizeMatMulOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor a, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor b, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor b_scale, c.FloatInput(2));
  const Tensor low = a.Min().Minimum(0), high = a.Max().Maximum(0);
  const Tensor range = (high - low) / 255;
  const Tensor scale = range.Eq(0).Where(1, range);
  const Tensor zero = RoundedWithin(0 - low / scale, 0, 255);
  const Tensor bytes =
      (RoundedWithin(a / scale) + zero).Maximum(0).Minimum(255).Cast(DType::kUInt8);
  const Tensor whole = bytes.Cast(DType::kInt32) - zero.Cast(DType::kUInt8).Cast(DType::kInt32);
  Tensor factors = b.Cast(DType::kInt32);
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor b_zero, c.Input(3));
    factors = factors - Scalar(b_zero.Cast(DType::kInt32));
  }
  Tensor out = whole.MatMul(factors).Cast(DType::kFloat32) * (scale * Scalar(b_scale));
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(4));
    out = out + bias;
  }
  return c.Output(out);
}

absl::Status MatMulIntegerToFloatOp(NodeContext& c) {
  Tensor x[2], scale[2];
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(x[i], c.Input(i));
    TG_ASSIGN_OR_RETURN(scale[i], c.FloatInput(2 + i));
    x[i] = x[i].Cast(DType::kInt32);
    if (!c.HasInput(4 + i)) continue;
    TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(4 + i));
    x[i] = x[i] - Scalar(zero.Cast(DType::kInt32));
  }
  Tensor out = x[0].MatMul(x[1]).Cast(DType::kFloat32) * (Scalar(scale[0]) * Scalar(scale[1]));
  if (c.HasInput(6)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(6));
    out = out + bias;
  }
  return c.Output(out.Cast(scale[0].dtype()));
}

// B [N, K] in blocks of `block_size` elements along K, each of `bits` bits with a scale and a zero
// point of its own: bytes [N, blocks, bytes of a block].
namespace {

constexpr int64_t kFewRows = 8;

// [N, K] of a few bits each, in blocks of a row with a scale and a zero point.
struct PackedMatrix {
  Tensor bytes;        // u8 [N, blocks, bytes of a block]
  Tensor zero, scale;  // floats [N or 1, blocks or 1, 1]
  int64_t bits = 0, k = 0;

  Tensor Whole() const {
    const Tensor all = (Unpacked(bytes, bits).Cast(scale.dtype()) - zero) * scale;
    const int64_t n = bytes.dim(0);
    return all.Reshape({n, all.size() / n}).Slice(1, 0, k);
  }
};

// a [..., K] times the matrix transposed. Whole bytes are read in their order, and each of their
// parts is multiplied by what belongs to it, where elements of their own would be gathered from
// bytes; the zero points are subtracted from the sums.
Tensor FewRows(const Tensor& a, const PackedMatrix& b) {
  const int64_t parts = 8 / b.bits, blocks = b.bytes.dim(1), bytes = b.bytes.dim(2);
  const int64_t rows = a.size() / b.k;
  const Tensor by_part = a.Reshape({rows, 1, blocks, bytes, parts});
  Tensor sum;
  for (int64_t i = 0; i < parts; ++i) {
    const Tensor part = b.bytes.ShiftRight(i * b.bits).And((int64_t{1} << b.bits) - 1);
    const Tensor product =
        by_part.Slice(4, i, i + 1).Squeeze(4) * part.Cast(DType::kInt32).Cast(a.dtype());
    sum = sum.valid() ? sum + product : product;
  }
  const Tensor of_blocks = a.Reshape({rows, 1, blocks, bytes * parts}).Sum({3}).Contiguous();
  const Tensor off = (of_blocks * (b.zero * b.scale).Squeeze(2)).Sum({2});
  const Tensor out = (sum * b.scale).Sum({2, 3}) - off;
  Shape shape = ToShape(a.shape());
  shape.back() = b.bytes.dim(0);
  return out.Reshape(shape);
}

}  // namespace

absl::Status MatMulNBitsOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor a, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor packed, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor scales, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const Attribute* k, c.Required("K", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const Attribute* n, c.Required("N", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const int64_t bits, c.Int("bits", 4));
  TG_ASSIGN_OR_RETURN(const Attribute* block, c.Required("block_size", AttributeType::kInt));
  c.Ignore("accuracy_level");  // how much precision may be given up; none is
  TG_ASSIGN_OR_RETURN(const int64_t prepacked, c.Int("weight_prepacked", 0));
  if (prepacked != 0) return Unimplemented("'weight_prepacked' is ", prepacked);
  if (c.HasInput(4)) return Unimplemented("input 4, 'g_idx', is not supported");
  if ((bits != 2 && bits != 4 && bits != 8) || block->i < 1 || block->i > kMaxWindowNumber ||
      k->i < 1 || n->i < 1 || block->i * bits % 8 != 0) {
    return InvalidArgument("'bits' is ", bits, ", 'block_size' ", block->i, ", 'K' ", k->i,
                           ", 'N' ", n->i, "; expected 2, 4 or 8 bits and whole bytes in a block");
  }
  const int64_t blocks = CeilDiv(k->i, block->i), bytes = block->i * bits / 8;
  if (packed.size() != n->i * blocks * bytes || scales.size() != n->i * blocks) {
    return InvalidArgument("B has shape ", ToString(packed.shape()), " and the scales ",
                           ToString(scales.shape()), " for ", n->i, " x ", blocks, " blocks");
  }
  const DType wide = ComposedType(a.dtype());
  Tensor zero = c.builder().Full(wide, Shape{1, 1, 1}, int64_t{1} << (bits - 1));
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor points, c.Input(3));
    if (IsFloat(points.dtype())) {
      zero = points.Cast(wide).Reshape({n->i, blocks, 1});
    } else {
      const int64_t row = CeilDiv(blocks * bits, 8);
      if (points.size() != n->i * row)
        return InvalidArgument("the zero points have shape ", ToString(points.shape()));
      zero = Unpacked(points.Reshape({n->i, row}), bits)
                 .Slice(1, 0, blocks)
                 .Cast(wide)
                 .Reshape({n->i, blocks, 1});
    }
  }
  const PackedMatrix b{packed.Reshape({n->i, blocks, bytes}), zero,
                       scales.Cast(wide).Reshape({n->i, blocks, 1}), bits, k->i};
  Axes outer = AllAxes(a.rank());
  if (!outer.empty()) outer.pop_back();
  const Dim rows(a.SizeOf(outer));
  const bool few = rows.is_static() && rows.size() <= kFewRows && k->i == blocks * block->i;
  Tensor out = few ? FewRows(a.Cast(wide), b) : a.Cast(wide).MatMul(b.Whole().Transpose());
  if (c.HasInput(5)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(5));
    out = out + bias.Cast(wide);
  }
  return c.Output(out.Cast(a.dtype()));
}

}  // namespace telegrad::onnx
