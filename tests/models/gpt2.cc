// GPT-2 normalizes before attention and before the perceptron, and adds their results to what came
// in.
#include "engine/base/strings.h"
#include "tests/models/models.h"
#include "tests/models/transformer.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kLayers = 12, kHeads = 12, kChannels = 768, kTokens = 50257, kPositions = 1024;

Tensor Attention(Builder* b, const std::string& name, const Tensor& x) {
  const Tensor all = nn::Linear(b, name + ".qkv", kChannels, 3 * kChannels)(x);
  const auto part = [&](int64_t i) {
    return SplitHeads(all.Slice(-1, i * kChannels, (i + 1) * kChannels), kHeads);
  };
  const Tensor q = part(0), k = part(1), v = part(2);
  return Attend(b, name, q, k, v, {}, /*causal=*/true);
}

}  // namespace

absl::StatusOr<Plan> Gpt2(int64_t batch, int64_t length) {
  Builder b;
  const Tensor tokens = b.Param(DType::kInt32, {batch, length}, "tokens");
  const Tensor embedding = Table(&b, "tokens.table", kTokens, kChannels);
  const Tensor positions = Table(&b, "positions.table", kPositions, kChannels);
  Tensor x = embedding.Gather(tokens) + positions.Slice(0, 0, length);
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string name = StrCat("layer", i);
    x = x + Attention(&b, name + ".attention", nn::LayerNorm(&b, name + ".norm1", kChannels)(x));
    x = x + Perceptron(&b, name + ".perceptron", nn::LayerNorm(&b, name + ".norm2", kChannels)(x),
                       &Tensor::GeluTanh);
  }
  x = nn::LayerNorm(&b, "norm", kChannels)(x);
  b.Output(x.MatMul(embedding.Transpose()), "logits");
  return b.Finish();
}

}  // namespace telegrad::testing
