// Attention, and positions told by rotation.
#include <cmath>
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/products.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

constexpr double kHidden = -std::numeric_limits<double>::infinity();

// exp(s) over its sum along the last axis, 0 in rows that hide all. The shift by the maximum
// cancels in value and gradient.
Tensor MaskedSoftmax(const Tensor& scores) {
  // Without a gradient; 0 where all is masked, since inf - inf is no number.
  const Tensor highest = scores.Max({-1}, true).Detach();
  const Tensor e = (scores - highest.IsFinite().Where(highest, 0.0)).Exp();
  const Tensor sum = e.Sum({-1}, true);
  return e / sum.Eq(0).Where(1, sum);
}

// [.., heads, length, width] -> [.., groups, heads / groups, length, width], also of one head for
// all.
Tensor SplitHeads(const Tensor& x, int64_t groups) {
  if (!x.valid() || x.rank() < 3) return x;
  Dims out = x.dims();
  const int64_t heads = x.dim(-3);
  out[out.size() - 3] = heads == 1 ? 1 : groups;
  out.insert(out.end() - 2, Dim(heads == 1 ? 1 : heads / groups));
  return x.Reshape(out);
}

absl::Status CheckHeads(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads = [](const Tensor& t) { return t.rank() < 3 ? Dim(0) : t.dims()[t.rank() - 3]; };
  const Dim of_q = heads(q), of_k = heads(k);
  if (of_q.is_static() && of_k.is_static() && heads(v) == of_k && of_k.size() > 0 &&
      of_q.size() % of_k.size() == 0) {
    return absl::OkStatus();
  }
  return InvalidArgument("attention: the heads, axis -3 of the queries ", ToString(q.dims()),
                         ", are no multiple of those of keys ", ToString(k.dims()), " and values ",
                         ToString(v.dims()));
}

}  // namespace

Tensor Tensor::ScaledDotProductAttention(const Tensor& key, const Tensor& value, const Tensor& mask,
                                         bool causal, std::optional<double> scale,
                                         bool grouped) const {
  if (!valid()) return *this;
  const bool masked = mask.builder() != nullptr;
  if (!key.valid() || !value.valid() || (masked && !mask.valid())) {
    return builder_->Fail(InvalidArgument("attention: an operand is an empty tensor"));
  }
  const Dims of_q = dims(), of_k = key.dims(), of_v = value.dims();
  if (rank() < 2 || key.rank() < 2 || value.rank() < 2 || of_q.back() != of_k.back() ||
      of_k[of_k.size() - 2] != of_v[of_v.size() - 2]) {
    return builder_->Fail(InvalidArgument("attention: queries ", ToString(of_q), ", keys ",
                                          ToString(of_k), ", values ", ToString(of_v),
                                          ", expected [..., L, D], [..., S, D] and [..., S, E]"));
  }
  if (!scale && !of_q.back().is_static()) {
    return builder_->Fail(InvalidArgument("attention: the last axis of ", ToString(of_q),
                                          " is symbolic; give the scale"));
  }
  const DType type = FloatType(PromoteTypes(PromoteTypes(dtype(), key.dtype()), value.dtype()));
  const DType wide = FactorType(type);
  Tensor q = Cast(wide), k = key.Cast(wide), v = value.Cast(wide), seen = mask;
  const bool split = grouped && of_q.size() >= 3;
  if (split) {
    if (absl::Status s = CheckHeads(q, k, v); !s.ok()) return builder_->Fail(s);
    const int64_t groups = k.dim(-3);
    q = SplitHeads(q, groups);
    k = SplitHeads(k, groups);
    v = SplitHeads(v, groups);
    if (masked) seen = SplitHeads(mask, groups);
  }
  Tensor scores = q.MatMul(k.Transpose()) *
                  scale.value_or(1 / std::sqrt(static_cast<double>(of_q.back().size())));
  if (!scores.valid()) return scores;
  if (masked) seen = IsBool(mask.dtype()) ? seen : seen.Cast(wide);
  if (masked && IsBool(mask.dtype())) scores = seen.Where(scores, kHidden);
  if (masked && !IsBool(mask.dtype())) scores = scores + seen;
  if (causal) {
    const Tensor from = builder_->Iota(DType::kInt32, of_q[of_q.size() - 2]).Unsqueeze(-1);
    const Tensor to = builder_->Iota(DType::kInt32, of_k[of_k.size() - 2]);
    scores = to.Le(from).Where(scores, kHidden);
  }
  // Every row of a causal mask alone shows the first key.
  Tensor out = (masked ? MaskedSoftmax(scores) : scores.Softmax(-1)).MatMul(v).Cast(type);
  if (!split || !out.valid()) return out;
  Dims joined = out.dims();
  joined.erase(joined.end() - 4);
  joined[joined.size() - 3] = dim(-3);
  return out.Reshape(joined);
}

// Each pair (a, b) turns to (a cos - b sin, a sin + b cos). The pairs lie along an axis of 2.
Tensor Tensor::Rope(const Tensor& cos, const Tensor& sin, bool interleaved) const {
  if (!valid()) return *this;
  if (!cos.valid() || !sin.valid()) {
    return builder_->Fail(InvalidArgument("rope: the angles are an empty tensor"));
  }
  if (rank() < 1 || !dims().back().is_static() || dim(-1) % 2 != 0 || cos.rank() < 1 ||
      cos.rank() > rank() || sin.dims() != cos.dims() || cos.dims().back() != Dim(dim(-1) / 2)) {
    return builder_->Fail(InvalidArgument("rope: ", ToString(dims()), " by cosines ",
                                          ToString(cos.dims()), " and sines ", ToString(sin.dims()),
                                          ", expected [..., length, D] and [..., length, D / 2]"));
  }
  const int64_t pair = interleaved ? -1 : -2;
  Dims pairs = dims();
  pairs.back() = dim(-1) / 2;
  pairs.insert(interleaved ? pairs.end() : pairs.end() - 1, Dim(2));
  const DType type = FloatType(dtype());
  const Tensor x = Cast(type).Reshape(pairs);
  const Tensor a = x.Slice(pair, 0, 1), b = x.Slice(pair, 1, 2);
  const Tensor c = cos.Unsqueeze(pair), s = sin.Unsqueeze(pair);
  const Tensor first = (a * c - b * s).Cast(type), second = (a * s + b * c).Cast(type);
  const int64_t axis[] = {rank() + 1 + pair};
  return builder_->Make(Op::kCat, DType::kVoid, {first, second}, axis).Reshape(dims());
}

}  // namespace telegrad
