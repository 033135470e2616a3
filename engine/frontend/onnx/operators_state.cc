// Layers that carry a state from one call to the next: linear attention, causal convolution.
#include <cmath>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxUnrolledSteps = 4096;

// [B, T, H * D] -> [B, H, T, D] in f32.
absl::StatusOr<Tensor> PackedHeads(const Tensor& x, int64_t heads, int i) {
  if (x.rank() != 3 || heads < 1 || x.dim(2) % heads != 0) {
    return InvalidArgument("input ", i, " has shape ", ToString(x.shape()),
                           ", expected [batch, length, ", heads, " * size]");
  }
  return x.Cast(DType::kFloat32)
      .Reshape({x.dim(0), x.dim(1), heads, x.dim(2) / heads})
      .Permute({0, 2, 1, 3});
}

struct LinearAttentionInputs {
  Tensor q, k, v, state, decay, beta;  // the last two are invalid where the rule has none
};

absl::Status ReadGates(NodeContext& c, int64_t heads, LinearAttentionInputs* in) {
  TG_ASSIGN_OR_RETURN(const std::string_view rule, c.String("update_rule", "gated_delta"));
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") return InvalidArgument("'update_rule' is '", rule, "'");
  if (gated != c.HasInput(4) || delta != c.HasInput(5)) {
    return InvalidArgument("the rule '", rule, "' has ", gated ? "a" : "no", " decay and ",
                           delta ? "a" : "no", " beta; the node has others");
  }
  if (gated) {
    TG_ASSIGN_OR_RETURN(const Tensor decay, c.FloatInput(4));
    TG_ASSIGN_OR_RETURN(in->decay, PackedHeads(decay, heads, 4));
    in->decay = in->decay.Exp();
  }
  if (delta) {
    TG_ASSIGN_OR_RETURN(const Tensor beta, c.FloatInput(5));
    const bool one = beta.rank() == 3 && beta.dim(2) == 1;
    TG_ASSIGN_OR_RETURN(in->beta, PackedHeads(beta, one ? 1 : heads, 5));
  }
  return absl::OkStatus();
}

// Element t of axis 2, as a column [B, H, D, 1].
Tensor ColumnAt(const Tensor& x, int64_t t) { return x.Slice(2, t, t + 1).Transpose(); }

}  // namespace

// For each step: S = exp(decay) S; S += k (beta (v - k' S))', where the terms that the rule lacks
// are left out; o = scale q' S.
absl::Status LinearAttentionOp(NodeContext& c) {
  c.Ignore("chunk_size");  // it tells how to compute, not what
  TG_ASSIGN_OR_RETURN(const Attribute* q_heads, c.Required("q_num_heads", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const Attribute* kv_heads, c.Required("kv_num_heads", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(float scale, c.Float("scale", 0));
  const int64_t heads = kv_heads->i;
  if (heads < 1 || q_heads->i < 1 || q_heads->i % heads != 0) {
    return InvalidArgument(q_heads->i, " heads of queries for ", heads, " of keys");
  }
  LinearAttentionInputs in;
  TG_ASSIGN_OR_RETURN(const Tensor query, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor key, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Tensor value, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(in.q, PackedHeads(query, q_heads->i, 0));
  TG_ASSIGN_OR_RETURN(in.k, PackedHeads(key, heads, 1));
  TG_ASSIGN_OR_RETURN(in.v, PackedHeads(value, heads, 2));
  TG_RETURN_IF_ERROR(ReadGates(c, heads, &in));
  const int64_t batch = in.q.dim(0), steps = in.q.dim(2), size = in.k.dim(3);
  if (steps > kMaxUnrolledSteps) {
    return Unimplemented(steps, " steps; supported are ", kMaxUnrolledSteps);
  }
  DType state_type = query.dtype();
  Tensor state = c.builder().Zeros({batch, heads, size, in.v.dim(3)});
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor past, c.FloatInput(3));
    state_type = past.dtype();
    state = past.Cast(DType::kFloat32);
  }
  if (scale == 0) scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < steps; ++t) {
    const Tensor k = ColumnAt(in.k, t);
    Tensor v = in.v.Slice(2, t, t + 1);
    if (in.decay.valid()) state = state * ColumnAt(in.decay, t);
    if (in.beta.valid()) {
      v = (v - k.Transpose().MatMul(state)) * in.beta.Slice(2, t, t + 1);
    }
    state = (state + k * v).Contiguous();
    const int64_t shared = q_heads->i / heads;
    const Tensor read = shared == 1 ? state : state.RepeatInterleave(shared, 1);
    outputs.push_back(in.q.Slice(2, t, t + 1).MatMul(read) * scale);
  }
  if (outputs.empty()) return InvalidArgument("the sequence has no steps");
  const Tensor out = Concat(outputs, 2).Permute({0, 2, 1, 3});
  TG_RETURN_IF_ERROR(
      c.Output(out.Reshape({batch, steps, q_heads->i * in.v.dim(3)}).Cast(query.dtype())));
  return c.Output(state.Cast(state_type));
}

// A convolution of each channel by itself that sees the present and the past only; the last inputs
// are the next call's past.
absl::Status CausalConvWithStateOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor weight, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const std::string_view activation, c.String("activation", "none"));
  const bool silu = activation == "silu" || activation == "swish";
  if (!silu && activation != "none") return InvalidArgument("'activation' is '", activation, "'");
  if (x.rank() != 3 || weight.rank() != 3 || weight.dim(0) != x.dim(1) || weight.dim(1) != 1 ||
      weight.dim(2) < 1) {
    return InvalidArgument("an input of shape ", ToString(x.shape()), " with a weight of shape ",
                           ToString(weight.shape()));
  }
  const int64_t channels = x.dim(1), kept = weight.dim(2) - 1;
  const DType dtype = x.dtype(), wide = ComposedType(dtype);
  Tensor all = x;
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor past, c.FloatInput(3));
    all = Concat(std::vector<Tensor>{past, x}, 2);
  } else {
    all = x.Pad({0, 0, 0, 0, kept, 0});
  }
  Tensor out = all.Cast(wide).Conv(weight.Cast(wide), {}, channels);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(2));
    out = out + AlongAxis(bias, 1, 3).Cast(wide);
  }
  if (silu) out = out.Silu();
  TG_RETURN_IF_ERROR(c.Output(out.Cast(dtype)));
  return c.Output(all.Slice(2, all.dim(2) - kept, all.dim(2)));
}

}  // namespace telegrad::onnx
