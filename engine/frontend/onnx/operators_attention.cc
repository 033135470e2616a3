// Attention with its masks and caches, and positions told by rotation.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/frontend/onnx/attention.h"
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// What Attention is called with, all in four axes [batch, heads, length, size].
struct AttentionInputs {
  Tensor q, k, v;
  bool packed = false;  // Q, K and V came with three axes
  int64_t past = 0;     // keys before those of this call
  Tensor valid_keys;    // [batch] i64, or invalid
};

absl::StatusOr<AttentionInputs> ReadAttention(NodeContext& c) {
  AttentionInputs in;
  TG_ASSIGN_OR_RETURN(in.q, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(in.k, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(in.v, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const int64_t q_heads, c.Int("q_num_heads", 0));
  TG_ASSIGN_OR_RETURN(const int64_t kv_heads, c.Int("kv_num_heads", 0));
  in.packed = in.q.rank() == 3;
  if (in.packed) {
    TG_ASSIGN_OR_RETURN(in.q, SplitLastAxis(in.q, q_heads, "Q"));
    TG_ASSIGN_OR_RETURN(in.k, SplitLastAxis(in.k, kv_heads, "K"));
    TG_ASSIGN_OR_RETURN(in.v, SplitLastAxis(in.v, kv_heads, "V"));
  }
  if (in.q.rank() != 4 || in.k.rank() != 4 || in.v.rank() != 4) {
    return InvalidArgument("Q, K and V have shapes ", ToString(in.q.shape()), ", ",
                           ToString(in.k.shape()), " and ", ToString(in.v.shape()),
                           ", expected three or four axes each");
  }
  if (in.k.dim(1) < 1 || in.q.dim(1) % in.k.dim(1) != 0 || in.k.dim(1) != in.v.dim(1)) {
    return InvalidArgument(in.q.dim(1), " heads of queries for ", in.k.dim(1), " of keys and ",
                           in.v.dim(1), " of values");
  }
  if (c.HasInput(4) != c.HasInput(5)) {
    return InvalidArgument("the past keys and the past values belong together");
  }
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(const Tensor keys, c.FloatInput(4));
    TG_ASSIGN_OR_RETURN(const Tensor values, c.FloatInput(5));
    if (c.HasInput(6)) return InvalidArgument("'nonpad_kv_seqlen' does not go with past keys");
    if (keys.rank() != 4) return InvalidArgument("past keys of shape ", ToString(keys.shape()));
    in.past = keys.dim(2);
    in.k = Concat(std::vector<Tensor>{keys, in.k}, 2);
    in.v = Concat(std::vector<Tensor>{values, in.v}, 2);
  }
  if (c.HasInput(6)) {
    TG_ASSIGN_OR_RETURN(in.valid_keys, c.Input(6));
    if (in.valid_keys.rank() != 1) return InvalidArgument("'nonpad_kv_seqlen' is no vector");
  }
  return in;
}

// Which keys each query may see by position: causality, the window, padding. Invalid if all.
absl::StatusOr<Tensor> SeenByPosition(NodeContext& c, const AttentionInputs& in) {
  TG_ASSIGN_OR_RETURN(const int64_t causal, c.Int("is_causal", 0));
  TG_ASSIGN_OR_RETURN(const int64_t left, c.Int("left_window_size", -1));
  TG_ASSIGN_OR_RETURN(const int64_t right, c.Int("right_window_size", -1));
  if (left < -1 || right < -1) return InvalidArgument("a window of ", std::min(left, right));
  const Tensor key = c.builder().Iota(DType::kInt64, in.k.dim(2));
  Tensor query = c.builder().Iota(DType::kInt64, in.q.dim(2)).Unsqueeze(1);
  Tensor seen;
  if (in.valid_keys.valid()) {
    const Tensor valid = in.valid_keys.Cast(DType::kInt64).Reshape({in.valid_keys.dim(0), 1, 1, 1});
    seen = key.Lt(valid);
    query = query + (valid - in.q.dim(2));
  } else {
    query = query + in.past;
  }
  if (causal != 0) seen = Both(seen, key.Le(query));
  if (left >= 0) seen = Both(seen, key.Ge(query - left));
  if (right >= 0) seen = Both(seen, key.Le(query + right));
  return seen;
}

// The mask with as many keys as there are: those that it does not tell of are hidden.
absl::StatusOr<Tensor> ReadMask(NodeContext& c, int64_t keys) {
  TG_ASSIGN_OR_RETURN(Tensor mask, c.Input(3));
  const int64_t missing = mask.rank() < 1 ? 0 : keys - mask.dim(-1);
  if (mask.rank() < 1 || missing < 0) {
    return InvalidArgument("the mask has shape ", ToString(mask.shape()), " for ", keys, " keys");
  }
  if (missing == 0 || mask.dim(-1) == 1) return mask;
  std::vector<int64_t> pairs(static_cast<size_t>(2 * mask.rank()), 0);
  pairs.back() = missing;
  return mask.Pad(pairs, IsBool(mask.dtype()) ? 0 : kMinusInfinity);
}

// exp(s) over its sum along the last axis; 0 in rows of -inf alone.
Tensor SoftmaxOrZero(const Tensor& scores) {
  const Tensor highest = scores.Max({-1}, true);
  const Tensor e = (scores - highest.IsInf(false, true).Where(0.0, highest)).Exp();
  const Tensor sum = e.Sum({-1}, true);
  return e / sum.Eq(0).Where(1, sum);
}

}  // namespace

absl::StatusOr<Tensor> SplitLastAxis(const Tensor& x, int64_t heads, std::string_view what) {
  if (x.rank() != 3 || heads < 1 || x.dim(2) % heads != 0) {
    return InvalidArgument(what, " of shape ", ToString(x.shape()), " in ", heads,
                           " heads, expected [batch, length, heads * size]");
  }
  return x.Reshape({x.dim(0), x.dim(1), heads, x.dim(2) / heads}).Permute({0, 2, 1, 3});
}

Tensor JoinHeads(const Tensor& x) {
  return x.Permute({0, 2, 1, 3}).Reshape({x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}

Tensor Both(const Tensor& a, const Tensor& b) {
  if (!a.valid()) return b;
  return b.valid() ? a.And(b) : a;
}

AttentionSteps Attend(const AttentionTerms& t) {
  AttentionSteps out;
  const DType dtype = t.q.dtype(), wide = ComposedType(dtype);
  const int64_t shared = t.q.dim(1) / std::max<int64_t>(1, t.k.dim(1));
  const auto for_queries = [&](const Tensor& x) {
    return (shared == 1 ? x : x.RepeatInterleave(shared, 1)).Cast(wide);
  };
  out.product = t.q.Cast(wide).MatMul(for_queries(t.k).Transpose()) * t.scale;
  out.capped = t.softcap > 0 ? (out.product / t.softcap).Tanh() * t.softcap : out.product;
  out.biased = t.bias.valid() ? out.capped + t.bias.Cast(wide) : out.capped;
  if (t.seen.valid()) out.biased = t.seen.Where(out.biased, kMinusInfinity);
  const Tensor precise = out.biased.Cast(t.precision);
  out.weights = SoftmaxOrZero(precise.Cast(ComposedType(t.precision))).Cast(wide);
  out.out = out.weights.MatMul(for_queries(t.v)).Cast(dtype);
  return out;
}

absl::StatusOr<Tensor> RotateHeads(const Tensor& x, const Tensor& cos, const Tensor& sin,
                                   int64_t rotated, bool interleaved) {
  if (x.rank() != 4 || rotated < 2 || rotated > x.dim(3) || rotated % 2 != 0) {
    return InvalidArgument("'rotary_embedding_dim' is ", rotated, " for heads of shape ",
                           ToString(x.shape()));
  }
  if (cos.rank() != 3 || sin.rank() != 3) {
    return InvalidArgument("cosines of shape ", ToString(cos.shape()),
                           ", expected [batch, length, half of the rotated size]");
  }
  const DType wide = ComposedType(x.dtype());
  const Tensor turned =
      x.Slice(3, 0, rotated)
          .Cast(wide)
          .Rope(cos.Unsqueeze(1).Cast(wide), sin.Unsqueeze(1).Cast(wide), interleaved)
          .Cast(x.dtype());
  if (rotated == x.dim(3)) return turned;
  return Concat(std::vector<Tensor>{turned, x.Slice(3, rotated, x.dim(3))}, 3);
}

// Softmax(softcap(scale Q K') + mask) V. Keys and values of fewer heads serve several heads of
// queries each. A query that sees nothing gives 0.
absl::Status AttentionOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const AttentionInputs in, ReadAttention(c));
  TG_ASSIGN_OR_RETURN(const Tensor seen, SeenByPosition(c, in));
  const DType dtype = in.q.dtype(), wide = ComposedType(dtype);
  const double size = static_cast<double>(std::max<int64_t>(1, in.q.dim(3)));
  TG_ASSIGN_OR_RETURN(const float scale, c.Float("scale", static_cast<float>(1 / std::sqrt(size))));
  TG_ASSIGN_OR_RETURN(const float softcap, c.Float("softcap", 0));
  TG_ASSIGN_OR_RETURN(const int64_t mode, c.Int("qk_matmul_output_mode", 0));
  TG_ASSIGN_OR_RETURN(const DType precision, TypeAttribute(c, "softmax_precision", wide));
  if (mode < 0 || mode > 3) return InvalidArgument("'qk_matmul_output_mode' is ", mode);
  if (!IsFloat(precision)) return InvalidArgument("'softmax_precision' is no type of floats");

  AttentionTerms terms{.q = in.q,
                       .k = in.k,
                       .v = in.v,
                       .bias = {},
                       .seen = seen,
                       .scale = scale,
                       .softcap = softcap,
                       .precision = precision};
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor mask, ReadMask(c, in.k.dim(2)));
    if (IsBool(mask.dtype())) {
      terms.seen = Both(seen, mask);
    } else {
      terms.bias = mask;
    }
  }
  const AttentionSteps steps = Attend(terms);
  TG_RETURN_IF_ERROR(c.Output(in.packed ? JoinHeads(steps.out) : steps.out));
  TG_RETURN_IF_ERROR(c.Output(in.k));
  TG_RETURN_IF_ERROR(c.Output(in.v));
  const Tensor shown[] = {steps.product, steps.capped, steps.biased, steps.weights};
  return c.Output(shown[mode].Cast(dtype));
}

// Pairs of the first `rotary_embedding_dim` elements of each head turn by the angles of the
// position.
absl::Status RotaryEmbeddingOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(Tensor cos, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(Tensor sin, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const int64_t interleaved, c.Int("interleaved", 0));
  TG_ASSIGN_OR_RETURN(int64_t rotated, c.Int("rotary_embedding_dim", 0));
  TG_ASSIGN_OR_RETURN(const int64_t heads, c.Int("num_heads", 0));
  const bool packed = x.rank() == 3;
  if (packed) {
    TG_ASSIGN_OR_RETURN(x, SplitLastAxis(x, heads, "the input"));
  }
  if (rotated == 0) rotated = x.dim(-1);
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor positions, c.Input(3));
    cos = cos.Gather(positions);
    sin = sin.Gather(positions);
  }
  TG_ASSIGN_OR_RETURN(const Tensor out, RotateHeads(x, cos, sin, rotated, interleaved != 0));
  return c.Output(packed ? JoinHeads(out) : out);
}

}  // namespace telegrad::onnx
