// One token at a time: its keys and values are written into the caches at the position, and it
// attends to the caches up to there, whose part in use is a symbolic size.
#include "engine/base/strings.h"
#include "tests/models/models.h"
#include "tests/models/transformer.h"

namespace telegrad::testing {
namespace {

Tensor Attention(Builder* b, const std::string& name, const Tensor& x, const DecoderShape& shape,
                 const Tensor& position) {
  const int64_t size = shape.channels / shape.heads;
  const Tensor all = nn::Linear(b, name + ".qkv", shape.channels, 3 * shape.channels)(x);
  const auto part = [&](int64_t i) {
    return SplitHeads(all.Slice(-1, i * shape.channels, (i + 1) * shape.channels), shape.heads);
  };
  const auto seen = [&](int64_t i, const char* what) {
    const Tensor cache = b->State(DType::kFloat32, {1, shape.heads, shape.positions, size},
                                  StrCat(name, ".", what), Init::Constant(0));
    return b->Assign(cache.Narrow(2, position, 1), part(i)).Narrow(2, 0, position + 1);
  };
  const Tensor keys = seen(1, "keys"), values = seen(2, "values");
  return Attend(b, name, part(0), keys, values, {}, /*causal=*/false);
}

}  // namespace

absl::StatusOr<Plan> DecodeStep(const DecoderShape& shape) {
  Builder b;
  const Tensor token = b.Param(DType::kInt32, {1, 1}, "token");
  const Tensor position = b.Variable("position", 0, shape.positions - 1);
  const Tensor embedding = Table(&b, "tokens.table", shape.tokens, shape.channels);
  const Tensor places = Table(&b, "positions.table", shape.positions, shape.channels);
  Tensor x = embedding.Gather(token) + places.Narrow(0, position, 1);
  for (int64_t i = 0; i < shape.layers; ++i) {
    const std::string name = StrCat("layer", i);
    x = x + Attention(&b, name + ".attention",
                      nn::LayerNorm(&b, name + ".norm1", shape.channels)(x), shape, position);
    x = x + Perceptron(&b, name + ".perceptron",
                       nn::LayerNorm(&b, name + ".norm2", shape.channels)(x), &Tensor::GeluTanh);
  }
  b.Output(nn::LayerNorm(&b, "norm", shape.channels)(x).MatMul(embedding.Transpose()), "logits");
  return b.Finish();
}

}  // namespace telegrad::testing
