// com.microsoft's attention: as ONNX Runtime's transformer optimizer makes it. Documented in its
// docs/ContribOperators.md.
#include <algorithm>
#include <cmath>

#include "engine/frontend/onnx/attention.h"
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

absl::StatusOr<double> ScaleOf(NodeContext& c, int64_t size) {
  TG_ASSIGN_OR_RETURN(const float scale, c.Float("scale", 0));
  if (scale != 0) return scale;
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, size)));
}

// What key padding hides is lowered by `mask_filter_value`. The mask is [B] lengths, [B, S] or
// [B, L, S] of 0 and 1, or [2 B] ends and beginnings.
absl::StatusOr<Tensor> PaddingBias(NodeContext& c, int i, int64_t batch, int64_t keys) {
  TG_ASSIGN_OR_RETURN(const float filter, c.Float("mask_filter_value", -10000));
  if (!c.HasInput(i)) return Tensor();
  TG_ASSIGN_OR_RETURN(const Tensor mask, c.Input(i));
  const Tensor key = c.builder().Iota(DType::kInt32, keys);
  Tensor seen;
  if (mask.rank() == 1 && mask.dim(0) == batch) {
    seen = key.Lt(mask.Reshape({batch, 1, 1, 1}));
  } else if (mask.rank() == 1 && mask.dim(0) == 2 * batch) {
    const Tensor end = mask.Slice(0, 0, batch), begin = mask.Slice(0, batch, 2 * batch);
    seen = key.Lt(end.Reshape({batch, 1, 1, 1})).And(key.Ge(begin.Reshape({batch, 1, 1, 1})));
  } else if (mask.rank() == 2 && mask.dim(1) == keys) {
    seen = mask.Ne(0).Reshape({mask.dim(0), 1, 1, keys});
  } else if (mask.rank() == 3 && mask.dim(2) == keys) {
    seen = mask.Ne(0).Unsqueeze(1);
  } else {
    return Unimplemented("a mask of shape ", ToString(mask.shape()), " for ", batch,
                         " examples of ", keys, " keys");
  }
  return seen.Where(0.0, static_cast<double>(filter));
}

// Which keys a query sees if it sees none after itself, or only `window` up to itself.
Tensor CausalSeen(Builder& b, const Tensor& first, int64_t queries, int64_t keys, int64_t window) {
  const Tensor key = b.Iota(DType::kInt64, keys);
  const Tensor query = first + b.Iota(DType::kInt64, queries).Unsqueeze(1);
  const Tensor seen = key.Le(query);
  return window > 0 ? seen.And(key.Gt(query - window)) : seen;
}

// `past` of axis 0 or two tensors, before those of this call.
Tensor After(const Tensor& past, const Tensor& now) {
  return past.valid() ? Concat(std::vector<Tensor>{past, now}, 2) : now;
}

absl::StatusOr<Tensor> AddBias(NodeContext& c, int i, const Tensor& x, int64_t begin) {
  if (!c.HasInput(i)) return x;
  TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(i));
  if (bias.rank() != 1 || bias.dim(0) < begin + x.dim(-1)) {
    return InvalidArgument("the bias has shape ", ToString(bias.shape()));
  }
  return x + bias.Slice(0, begin, begin + x.dim(-1));
}

// Angles of each position from the caches, for x [B, heads, L, D].
absl::StatusOr<Tensor> RotateByCache(NodeContext& c, const Tensor& x, int cache,
                                     const Tensor& positions, int64_t rotated, bool interleaved) {
  TG_ASSIGN_OR_RETURN(const Tensor cos, c.FloatInput(cache));
  TG_ASSIGN_OR_RETURN(const Tensor sin, c.FloatInput(cache + 1));
  if (cos.rank() != 2) return InvalidArgument("cosines of shape ", ToString(cos.shape()));
  return RotateHeads(x, cos.Gather(positions), sin.Gather(positions),
                     rotated == 0 ? 2 * cos.dim(1) : rotated, interleaved);
}

}  // namespace

namespace {

// The inputs of an operator whose queries, keys and values are one product; -1 for none.
struct PackedInputs {
  int mask = -1, past = -1, bias = -1;
};

// Of all three [B, S, sum of `sizes`], next to each other.
absl::Status AttendPacked(NodeContext& c, const Tensor& all, const std::vector<int64_t>& sizes,
                          const PackedInputs& inputs, DType precision) {
  TG_ASSIGN_OR_RETURN(const Attribute* heads, c.Required("num_heads", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const int64_t causal, c.Int("unidirectional", 0));
  TG_ASSIGN_OR_RETURN(const int64_t rotary, c.Int("do_rotary", 0));
  TG_ASSIGN_OR_RETURN(const int64_t share, c.Int("past_present_share_buffer", 0));
  if (rotary != 0 || share != 0) {
    return Unimplemented("'do_rotary' and 'past_present_share_buffer' are not supported");
  }
  const std::vector<Tensor> parts = all.Split(sizes, -1);
  AttentionTerms terms;
  TG_ASSIGN_OR_RETURN(terms.q, SplitLastAxis(parts[0], heads->i, "Q"));
  TG_ASSIGN_OR_RETURN(terms.k, SplitLastAxis(parts[1], heads->i, "K"));
  TG_ASSIGN_OR_RETURN(terms.v, SplitLastAxis(parts[2], heads->i, "V"));
  const int64_t queries = terms.q.dim(2);
  if (c.HasInput(inputs.past)) {
    TG_ASSIGN_OR_RETURN(const Tensor past, c.FloatInput(inputs.past));
    if (past.rank() != 5 || past.dim(0) != 2) {
      return InvalidArgument("the past has shape ", ToString(past.shape()));
    }
    terms.k = After(past.Slice(0, 0, 1).Squeeze(0), terms.k);
    terms.v = After(past.Slice(0, 1, 2).Squeeze(0), terms.v);
  }
  const int64_t keys = terms.k.dim(2);
  TG_ASSIGN_OR_RETURN(terms.bias, PaddingBias(c, inputs.mask, all.dim(0), keys));
  if (inputs.bias >= 0 && c.HasInput(inputs.bias)) {
    TG_ASSIGN_OR_RETURN(const Tensor more, c.FloatInput(inputs.bias));
    terms.bias = terms.bias.valid() ? terms.bias + more.Cast(DType::kFloat32) : more;
  }
  if (causal != 0) {
    const Tensor first = c.builder().Const(DType::kInt64, keys - queries);
    terms.seen = CausalSeen(c.builder(), first, queries, keys, 0);
  }
  TG_ASSIGN_OR_RETURN(terms.scale, ScaleOf(c, terms.q.dim(3)));
  terms.precision = precision;
  TG_RETURN_IF_ERROR(c.Output(JoinHeads(Attend(terms).out)));
  return c.Output(Stack(std::vector<Tensor>{terms.k, terms.v}, 0));
}

absl::Status CheckPacked(const Tensor& x, const Tensor& weights) {
  if (x.rank() == 3 && weights.rank() == 2 && weights.dim(0) == x.dim(2)) return absl::OkStatus();
  return InvalidArgument("an input of shape ", ToString(x.shape()), " with weights of shape ",
                         ToString(weights.shape()));
}

}  // namespace

absl::Status MsAttentionOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor weights, c.FloatInput(1));
  TG_RETURN_IF_ERROR(CheckPacked(x, weights));
  if (c.HasInput(6)) return Unimplemented("input 6, the length of a shared past, is not supported");
  const int64_t third = weights.dim(1) / 3;
  TG_ASSIGN_OR_RETURN(const auto sizes, c.Ints("qkv_hidden_sizes", {third, third, third}));
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != weights.dim(1)) {
    return InvalidArgument("'qkv_hidden_sizes' are ", ToString(sizes), " of ", weights.dim(1));
  }
  TG_ASSIGN_OR_RETURN(const Tensor all, AddBias(c, 2, x.MatMul(weights), 0));
  return AttendPacked(c, all, sizes, {.mask = 3, .past = 4, .bias = 5}, ComposedType(x.dtype()));
}

// The same of integers of 8 bits, whose sums are scaled: by one number, or one for each column.
absl::Status QAttentionOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor weights, c.Input(1));
  TG_RETURN_IF_ERROR(CheckPacked(x, weights));
  const auto one = [](const Tensor& t) { return t.size() == 1 ? t.Reshape(Shape{}) : t; };
  Tensor whole[2] = {x.Cast(DType::kInt32), weights.Cast(DType::kInt32)}, scale[2];
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(scale[i], c.FloatInput(3 + i));
    if (!c.HasInput(6 + i)) continue;
    TG_ASSIGN_OR_RETURN(const Tensor zero, c.Input(6 + i));
    whole[i] = whole[i] - one(zero.Cast(DType::kInt32));
  }
  const Tensor product = whole[0].MatMul(whole[1]).Cast(DType::kFloat32);
  TG_ASSIGN_OR_RETURN(const Tensor all,
                      AddBias(c, 2, product * (one(scale[0]) * one(scale[1])), 0));
  const int64_t third = weights.dim(1) / 3;
  if (weights.dim(1) % 3 != 0) return InvalidArgument("weights of ", weights.dim(1), " columns");
  return AttendPacked(c, all, {third, third, third}, {.mask = 5, .past = 8}, DType::kFloat32);
}

absl::Status MultiHeadAttentionOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor q, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Attribute* number, c.Required("num_heads", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const int64_t causal, c.Int("unidirectional", 0));
  const int64_t heads = number->i;
  if (c.HasInput(8) || c.HasInput(9)) {
    return Unimplemented("inputs 8 and 9, of caches shared between beams, are not supported");
  }
  if (!c.HasInput(1) || q.rank() != 3) {
    return Unimplemented("packed queries, keys and values are not supported");
  }
  TG_ASSIGN_OR_RETURN(Tensor k, c.FloatInput(1));
  Tensor v;
  if (k.rank() == 5) {  // [B, S, heads, 2, D]
    v = k.Slice(3, 1, 2).Squeeze(3).Permute({0, 2, 1, 3});
    k = k.Slice(3, 0, 1).Squeeze(3).Permute({0, 2, 1, 3});
  } else {
    TG_ASSIGN_OR_RETURN(v, c.FloatInput(2));
  }
  AttentionTerms terms;
  const int64_t hidden = q.dim(2);
  TG_ASSIGN_OR_RETURN(q, AddBias(c, 3, q, 0));
  TG_ASSIGN_OR_RETURN(terms.q, SplitLastAxis(q, heads, "Q"));
  if (k.rank() == 3) {
    TG_ASSIGN_OR_RETURN(k, AddBias(c, 3, k, hidden));
    TG_ASSIGN_OR_RETURN(k, SplitLastAxis(k, heads, "K"));
  }
  if (v.rank() == 3) {
    TG_ASSIGN_OR_RETURN(v, AddBias(c, 3, v, 2 * hidden));
    TG_ASSIGN_OR_RETURN(v, SplitLastAxis(v, heads, "V"));
  }
  Tensor past_k, past_v;
  if (c.HasInput(6)) {
    TG_ASSIGN_OR_RETURN(past_k, c.FloatInput(6));
    TG_ASSIGN_OR_RETURN(past_v, c.FloatInput(7));
  }
  terms.k = After(past_k, k);
  terms.v = After(past_v, v);
  const int64_t queries = terms.q.dim(2), keys = terms.k.dim(2);
  TG_ASSIGN_OR_RETURN(terms.bias, PaddingBias(c, 4, q.dim(0), keys));
  if (c.HasInput(5)) {
    TG_ASSIGN_OR_RETURN(const Tensor more, c.FloatInput(5));
    terms.bias = terms.bias.valid() ? terms.bias + more.Cast(DType::kFloat32) : more;
  }
  if (causal != 0) {
    const Tensor first = c.builder().Const(DType::kInt64, keys - queries);
    terms.seen = CausalSeen(c.builder(), first, queries, keys, 0);
  }
  TG_ASSIGN_OR_RETURN(terms.scale, ScaleOf(c, terms.q.dim(3)));
  terms.precision = ComposedType(q.dtype());
  const AttentionSteps steps = Attend(terms);
  TG_RETURN_IF_ERROR(c.Output(JoinHeads(steps.out)));
  TG_RETURN_IF_ERROR(c.Output(terms.k));
  TG_RETURN_IF_ERROR(c.Output(terms.v));
  return c.Output(steps.product.Cast(q.dtype()));
}

// Keys and values of this call are written into the caches behind those that are there; input 5 is
// the number of keys of each example less 1, input 6 the largest of them all.
absl::Status GroupQueryAttentionOp(NodeContext& c) {
  for (const std::string_view name : {"smooth_softmax", "kv_cache_bit_width", "qk_output"}) {
    TG_ASSIGN_OR_RETURN(const int64_t value, c.Int(name, 0));
    if (value != 0) return Unimplemented("'", name, "' is ", value, "; supported is 0");
  }
  for (int i = 11; i < c.num_inputs(); ++i) {
    if (c.HasInput(i)) return Unimplemented("input ", i, " is not supported");
  }
  TG_ASSIGN_OR_RETURN(const Attribute* q_heads, c.Required("num_heads", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const Attribute* kv_heads, c.Required("kv_num_heads", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const int64_t rotary, c.Int("do_rotary", 0));
  TG_ASSIGN_OR_RETURN(const int64_t interleaved, c.Int("rotary_interleaved", 0));
  TG_ASSIGN_OR_RETURN(const int64_t window, c.Int("local_window_size", -1));
  TG_ASSIGN_OR_RETURN(const float softcap, c.Float("softcap", 0));
  TG_ASSIGN_OR_RETURN(Tensor q, c.FloatInput(0));
  const int64_t heads = q_heads->i, groups = kv_heads->i;
  if (heads < 1 || groups < 1 || heads % groups != 0 || q.rank() != 3) {
    return InvalidArgument(heads, " heads of queries for ", groups, " of keys, queries of shape ",
                           ToString(q.shape()));
  }
  Tensor k, v;
  if (c.HasInput(1)) {
    TG_ASSIGN_OR_RETURN(k, c.FloatInput(1));
    TG_ASSIGN_OR_RETURN(v, c.FloatInput(2));
  } else {  // packed behind the queries
    const int64_t size = q.dim(2) / (heads + 2 * groups);
    if (size < 1 || q.dim(2) != size * (heads + 2 * groups)) {
      return InvalidArgument("packed queries, keys and values of shape ", ToString(q.shape()));
    }
    const std::vector<Tensor> parts = q.Split({heads * size, groups * size, groups * size}, -1);
    q = parts[0];
    k = parts[1];
    v = parts[2];
  }
  TG_ASSIGN_OR_RETURN(q, SplitLastAxis(q, heads, "Q"));
  TG_ASSIGN_OR_RETURN(k, SplitLastAxis(k, groups, "K"));
  TG_ASSIGN_OR_RETURN(v, SplitLastAxis(v, groups, "V"));
  TG_ASSIGN_OR_RETURN(const Tensor lengths, c.Input(5));
  TG_ASSIGN_OR_RETURN(const double number, c.Number(6));
  const auto total = static_cast<int64_t>(number);
  const int64_t batch = q.dim(0), steps = q.dim(2);
  if (lengths.size() != batch || !(number >= static_cast<double>(steps) && number < 1e9)) {
    return InvalidArgument(lengths.size(), " lengths for ", batch, " examples, and ", number,
                           " keys in all for ", steps, " new ones");
  }
  // A prompt begins at 0, whatever of it is padding.
  const Tensor valid = lengths.Cast(DType::kInt64).Reshape({batch}) + 1;
  const Tensor first = steps == total ? valid * 0 : valid - steps;
  if (rotary != 0) {
    Tensor positions = first.Unsqueeze(1) + c.builder().Iota(DType::kInt64, steps);
    if (c.HasInput(9)) {
      TG_ASSIGN_OR_RETURN(positions, c.Input(9));
    }
    const bool pairs = interleaved != 0;
    TG_ASSIGN_OR_RETURN(q, RotateByCache(c, q, 7, positions.Maximum(0), 0, pairs));
    TG_ASSIGN_OR_RETURN(k, RotateByCache(c, k, 7, positions.Maximum(0), 0, pairs));
  }
  Tensor caches[2];
  for (int i = 0; i < 2; ++i) {
    const Tensor& now = i == 0 ? k : v;
    Tensor past;
    if (c.HasInput(3 + i)) {
      TG_ASSIGN_OR_RETURN(past, c.FloatInput(3 + i));
      if (past.rank() != 4) return InvalidArgument("a past of shape ", ToString(past.shape()));
    }
    const int64_t before = past.valid() ? past.dim(2) : 0, size = std::max(before, total);
    Tensor cache = past.valid() ? past.Pad({0, 0, 0, 0, 0, size - before, 0, 0})
                                : c.builder().Zeros({batch, groups, size, now.dim(3)}, now.dtype());
    caches[i] = WriteCache(cache, now, first, 2, false);
  }
  AttentionTerms terms{.q = q, .k = caches[0], .v = caches[1], .bias = {}, .seen = {}};
  const Tensor start = first.Reshape({batch, 1, 1, 1});
  terms.seen = CausalSeen(c.builder(), start, steps, caches[0].dim(2), window);
  if (c.HasInput(10)) {
    TG_ASSIGN_OR_RETURN(terms.bias, c.FloatInput(10));
    const int64_t missing = caches[0].dim(2) - terms.bias.dim(-1);
    if (terms.bias.rank() != 4 || missing < 0) {
      return InvalidArgument("the bias has shape ", ToString(terms.bias.shape()));
    }
    terms.bias = terms.bias.Pad({0, 0, 0, 0, 0, 0, 0, missing});
  }
  TG_ASSIGN_OR_RETURN(terms.scale, ScaleOf(c, q.dim(3)));
  terms.softcap = softcap;
  terms.precision = ComposedType(q.dtype());
  TG_RETURN_IF_ERROR(c.Output(JoinHeads(Attend(terms).out)));
  TG_RETURN_IF_ERROR(c.Output(caches[0]));
  return c.Output(caches[1]);
}

// Positions [batch, length], or one that they count from.
absl::Status MsRotaryEmbeddingOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(Tensor positions, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor cos, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const int64_t interleaved, c.Int("interleaved", 0));
  TG_ASSIGN_OR_RETURN(const int64_t rotated, c.Int("rotary_embedding_dim", 0));
  TG_ASSIGN_OR_RETURN(int64_t heads, c.Int("num_heads", 0));
  TG_ASSIGN_OR_RETURN(const float scale, c.Float("scale", 1));
  TG_ASSIGN_OR_RETURN(const int64_t packed, c.Int("is_packed_batching", 0));
  if (packed != 0 || scale != 1) {
    return Unimplemented("'is_packed_batching' and a 'scale' other than 1 are not supported");
  }
  const bool joined = x.rank() == 3;
  if (joined) {
    if (heads == 0 && cos.rank() == 2 && cos.dim(1) > 0) heads = x.dim(2) / (2 * cos.dim(1));
    TG_ASSIGN_OR_RETURN(x, SplitLastAxis(x, heads, "the input"));
  }
  if (x.rank() != 4) return InvalidArgument("the input has shape ", ToString(x.shape()));
  if (positions.size() == 1) {
    const Tensor steps = c.builder().Iota(DType::kInt64, x.dim(2));
    positions = (positions.Reshape(Shape{}) + steps).Unsqueeze(0).Expand({x.dim(0), x.dim(2)});
  }
  TG_ASSIGN_OR_RETURN(const Tensor out,
                      RotateByCache(c, x, 2, positions, rotated, interleaved != 0));
  return c.Output(joined ? JoinHeads(out) : out);
}

}  // namespace telegrad::onnx
