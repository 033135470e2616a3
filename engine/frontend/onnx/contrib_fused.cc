// com.microsoft's fused operators: norms of sums, products with an activation.
#include <algorithm>
#include <cmath>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// Over the last axis, in at least f32; with `centered` the mean is taken off first.
struct LastAxisNorm {
  Tensor out, mean, inverse;
};

LastAxisNorm NormalizeLast(const Tensor& x, double epsilon, bool centered) {
  LastAxisNorm out;
  const Tensor wide = x.Cast(ComposedType(x.dtype()));
  out.mean = wide.Mean({-1}, true);
  const Tensor moved = centered ? wide - out.mean : wide;
  out.inverse = ((moved * moved).Mean({-1}, true) + epsilon).Sqrt().Reciprocal();
  out.out = moved * out.inverse;
  return out;
}

absl::StatusOr<Tensor> PlusOptional(NodeContext& c, const Tensor& x, int i) {
  if (!c.HasInput(i)) return x;
  TG_ASSIGN_OR_RETURN(const Tensor more, c.FloatInput(i));
  return x + more.Cast(x.dtype());
}

// (input + skip + bias) normalized; inputs 2.. are gamma, beta (if centered) and bias.
absl::Status SkipNorm(NodeContext& c, bool centered) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor skip, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Tensor gamma, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-12f));
  const DType wide = ComposedType(x.dtype());
  TG_ASSIGN_OR_RETURN(const Tensor sum,
                      PlusOptional(c, x.Cast(wide) + skip.Cast(wide), centered ? 4 : 3));
  const LastAxisNorm norm = NormalizeLast(sum, epsilon, centered);
  Tensor out = norm.out * gamma.Cast(wide);
  if (centered) {
    TG_ASSIGN_OR_RETURN(out, PlusOptional(c, out, 3));
  }
  TG_RETURN_IF_ERROR(c.Output(out.Cast(x.dtype())));
  TG_RETURN_IF_ERROR(c.Output(norm.mean));
  TG_RETURN_IF_ERROR(c.Output(norm.inverse));
  return c.Output(sum.Cast(x.dtype()));
}

absl::StatusOr<Tensor> FusedActivation(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const std::string_view name, c.String("activation", ""));
  TG_ASSIGN_OR_RETURN(const auto params, c.Floats("activation_params", {}));
  const auto param = [&](size_t i, float otherwise) {
    return static_cast<double>(i < params.size() ? params[i] : otherwise);
  };
  if (name.empty()) return x;
  if (name == "Relu") return x.Relu();
  if (name == "Tanh") return x.Tanh();
  if (name == "Sigmoid") return x.Sigmoid();
  if (name == "LeakyRelu") return x.LeakyRelu(param(0, 0.01f));
  if (name == "Clip") return x.Maximum(param(0, -INFINITY)).Minimum(param(1, INFINITY));
  if (name == "HardSigmoid") return (x * param(0, 0.2f) + param(1, 0.5f)).Maximum(0).Minimum(1);
  return Unimplemented("'activation' is '", name, "'");
}

}  // namespace

absl::Status SkipLayerNormalizationOp(NodeContext& c) { return SkipNorm(c, true); }
absl::Status SkipSimplifiedLayerNormalizationOp(NodeContext& c) { return SkipNorm(c, false); }

// Before it was in the standard as RMSNormalization, exporters wrote it in the default domain.
absl::Status SimplifiedLayerNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", -1));
  TG_ASSIGN_OR_RETURN(const int64_t stash, c.Int("stash_type", 1));
  if ((axis != -1 && axis != x.rank() - 1) || stash != 1) {
    return Unimplemented("'axis' is ", axis, " and 'stash_type' ", stash,
                         "; supported are the last axis and 1");
  }
  const LastAxisNorm norm = NormalizeLast(x, epsilon, false);
  TG_RETURN_IF_ERROR(c.Output((norm.out * scale.Cast(norm.out.dtype())).Cast(scale.dtype())));
  return c.Output(norm.inverse);
}

// Embeddings of words, positions and segments, summed and normalized.
absl::Status EmbedLayerNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor words, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor table, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const Tensor position_table, c.FloatInput(3));
  TG_ASSIGN_OR_RETURN(const Tensor gamma, c.FloatInput(5));
  TG_ASSIGN_OR_RETURN(const Tensor beta, c.FloatInput(6));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-12f));
  TG_ASSIGN_OR_RETURN(const int64_t mask_type, c.Int("mask_index_type", 0));
  if (words.rank() != 2 || mask_type != 0) {
    return InvalidArgument("words of shape ", ToString(words.shape()), " and 'mask_index_type' ",
                           mask_type, ", expected two axes and 0");
  }
  const DType wide = ComposedType(table.dtype());
  Tensor positions = c.builder().Iota(DType::kInt64, words.dim(1));
  if (c.HasInput(8)) {
    TG_ASSIGN_OR_RETURN(positions, c.Input(8));
  }
  Tensor sum = table.Gather(words).Cast(wide) + position_table.Gather(positions).Cast(wide);
  if (c.HasInput(1) && c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(const Tensor segments, c.Input(1));
    TG_ASSIGN_OR_RETURN(const Tensor segment_table, c.FloatInput(4));
    sum = sum + segment_table.Gather(segments).Cast(wide);
  }
  const Tensor out = NormalizeLast(sum, epsilon, true).out * gamma.Cast(wide) + beta.Cast(wide);
  TG_RETURN_IF_ERROR(c.Output(out.Cast(table.dtype())));
  Tensor lengths = c.builder().Zeros({words.dim(0)}, DType::kInt32);
  if (c.HasInput(7)) {
    TG_ASSIGN_OR_RETURN(const Tensor mask, c.Input(7));
    lengths = mask.Cast(DType::kInt32).Sum({1});
  }
  TG_RETURN_IF_ERROR(c.Output(lengths));
  return c.Output(sum.Cast(table.dtype()));
}

// alpha A' B', where either may be transposed, also its batch axes behind its rows.
absl::Status FusedMatMulOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 1));
  Tensor x[2];
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(x[i], c.FloatInput(i));
    TG_ASSIGN_OR_RETURN(const int64_t transpose, c.Int(i == 0 ? "transA" : "transB", 0));
    TG_ASSIGN_OR_RETURN(const int64_t batch, c.Int(i == 0 ? "transBatchA" : "transBatchB", 0));
    // [rows, batch.., columns] -> [batch.., rows, columns]
    if (batch != 0 && x[i].rank() > 2) x[i] = x[i].MoveAxis(0, x[i].rank() - 2);
    if (transpose != 0 && x[i].rank() > 1) x[i] = x[i].Transpose();
  }
  const DType dtype = x[0].dtype();
  const Tensor out = x[0].MatMul(x[1]);
  return c.Output(alpha == 1 ? out : (out * alpha).Cast(dtype));
}

absl::Status FusedConvOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor weight, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(Tensor out, ConvByAttributes(c, x, weight));
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(2));
    out = out + AlongAxis(bias, 1, out.rank());
  }
  TG_ASSIGN_OR_RETURN(out, PlusOptional(c, out, 3));
  TG_ASSIGN_OR_RETURN(out, FusedActivation(c, out));
  return c.Output(out);
}

// The channels are the last axis of the input and the result.
absl::Status NhwcConvOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor weight, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(Tensor out, ConvByAttributes(c, x.MoveAxis(-1, 1), weight));
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(2));
    out = out + AlongAxis(bias, 1, out.rank());
  }
  return c.Output(out.MoveAxis(1, -1));
}

absl::Status FusedGemmOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor a, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(Tensor b, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 1));
  TG_ASSIGN_OR_RETURN(const float beta, c.Float("beta", 1));
  TG_ASSIGN_OR_RETURN(const int64_t transpose_a, c.Int("transA", 0));
  TG_ASSIGN_OR_RETURN(const int64_t transpose_b, c.Int("transB", 0));
  TG_ASSIGN_OR_RETURN(const std::string_view name, c.String("activation", ""));
  TG_ASSIGN_OR_RETURN(const float slope, c.Float("activation_alpha", 0.01f));
  if (transpose_a != 0) a = a.Transpose();
  if (transpose_b != 0) b = b.Transpose();
  Tensor out = a.MatMul(b) * alpha;
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(2));
    out = out + bias * beta;
  }
  if (name == "LeakyRelu") return c.Output(out.LeakyRelu(slope));
  TG_ASSIGN_OR_RETURN(out, FusedActivation(c, out));
  return c.Output(out);
}

absl::Status BiasGeluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor sum, PlusOptional(c, x, 1));
  return c.Output(sum.Gelu());
}

absl::Status FastGeluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor sum, PlusOptional(c, x, 1));
  return c.Output(sum.GeluTanh());
}

absl::Status QuickGeluOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 1.702f));
  return c.Output(Composed(x, [&](const Tensor& t) { return t * (t * alpha).Sigmoid(); }));
}

}  // namespace telegrad::onnx
