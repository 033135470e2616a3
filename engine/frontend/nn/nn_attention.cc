#include "engine/frontend/nn/nn_attention.h"

#include <cmath>

#include "engine/base/status.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad::nn {

MultiHeadAttention::MultiHeadAttention(Builder* builder, std::string_view name, int64_t channels,
                                       int64_t heads, const Options& options)
    : heads(heads) {
  if (heads < 1 || channels % heads != 0) {
    builder->Fail(
        InvalidArgument("multi_head_attention: ", channels, " channels for ", heads, " heads"));
    return;
  }
  const double bound = std::sqrt(6.0 / static_cast<double>(4 * channels));
  in_proj_weight =
      UniformParameter(builder, name, "in_proj_weight", {3 * channels, channels}, bound, options);
  out_proj_weight = UniformParameter(builder, name, "out_proj.weight", {channels, channels},
                                     FanBound(channels), options);
  if (!options.bias) return;
  in_proj_bias = ConstantParameter(builder, name, "in_proj_bias", {3 * channels}, 0, options);
  out_proj_bias = ConstantParameter(builder, name, "out_proj.bias", {channels}, 0, options);
}

Tensor MultiHeadAttention::Project(const Tensor& x, int64_t part) const {
  const int64_t channels = out_proj_weight.dim(0);
  if (!x.valid() || x.rank() != 3 || x.dim(2) != channels) {
    return x.builder() == nullptr
               ? Tensor()
               : x.builder()->Fail(InvalidArgument("multi_head_attention: ", ToString(x.shape()),
                                                   ", expected [N, L, ", channels, "]"));
  }
  const auto own = [&](const Tensor& all) {
    return all.Slice(0, part * channels, (part + 1) * channels);
  };
  Tensor y = x.MatMul(own(in_proj_weight).Transpose());
  if (Has(in_proj_bias)) y = y + own(in_proj_bias);
  return y.Reshape({x.dims()[0], x.dims()[1], heads, channels / heads}).Permute({0, 2, 1, 3});
}

Tensor MultiHeadAttention::Join(const Tensor& split) const {
  if (!split.valid()) return split;
  const Dims dims = split.dims();
  const Tensor y = split.Permute({0, 2, 1, 3})
                       .Reshape({dims[0], dims[2], out_proj_weight.dim(0)})
                       .MatMul(out_proj_weight.Transpose());
  return Has(out_proj_bias) ? y + out_proj_bias : y;
}

Tensor MultiHeadAttention::operator()(const Tensor& x, const Tensor& mask, bool causal) const {
  return (*this)(x, x, x, mask, causal);
}

Tensor MultiHeadAttention::operator()(const Tensor& x, const Tensor& key, const Tensor& value,
                                      const Tensor& mask, bool causal) const {
  return Join(
      Project(x, 0).ScaledDotProductAttention(Project(key, 1), Project(value, 2), mask, causal));
}

KvCache MultiHeadAttention::MakeCache(Builder* builder, std::string_view name, int64_t batch,
                                      int64_t length) const {
  const Shape shape = {batch, heads, length, out_proj_weight.dim(0) / heads};
  const auto slot = [&](std::string_view what) {
    return builder->State(out_proj_weight.dtype(), shape, StrCat(name, ".", what),
                          Init::Constant(0));
  };
  return {slot("keys"), slot("values")};
}

Tensor MultiHeadAttention::Continue(const Tensor& x, const KvCache& cache,
                                    const Tensor& position) const {
  const Tensor q = Project(x, 0), k = Project(x, 1), v = Project(x, 2);
  if (!q.valid() || !k.valid() || !v.valid()) return {};
  Builder* builder = x.builder();
  const int64_t length = x.dim(1);
  const Tensor keys = builder->Assign(cache.keys.Narrow(2, position, length), k);
  const Tensor values = builder->Assign(cache.values.Narrow(2, position, length), v);
  const Tensor own = builder->Iota(DType::kInt64, length).Unsqueeze(-1) + position;
  const Tensor seen = builder->Iota(DType::kInt64, cache.keys.dim(2)).Le(own);
  return Join(q.ScaledDotProductAttention(keys, values, seen));
}

}  // namespace telegrad::nn
