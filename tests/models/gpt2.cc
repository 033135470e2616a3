// GPT-2 normalizes before attention and before the perceptron, and adds their results to what came
// in.
#include "engine/base/strings.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/nn/optim.h"
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

// tokens [batch, length] i32 -> [batch, length, kTokens].
Tensor Logits(Builder* b, const Tensor& tokens) {
  const Tensor embedding = Table(b, "tokens.table", kTokens, kChannels);
  const Tensor positions = Table(b, "positions.table", kPositions, kChannels);
  Tensor x = embedding.Gather(tokens) + positions.Slice(0, 0, tokens.dim(1));
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string name = StrCat("layer", i);
    x = x + Attention(b, name + ".attention", nn::LayerNorm(b, name + ".norm1", kChannels)(x));
    x = x + Perceptron(b, name + ".perceptron", nn::LayerNorm(b, name + ".norm2", kChannels)(x),
                       &Tensor::GeluTanh);
  }
  return nn::LayerNorm(b, "norm", kChannels)(x).MatMul(embedding.Transpose());
}

}  // namespace

absl::StatusOr<Plan> Gpt2(int64_t batch, int64_t length) {
  Builder b;
  b.Output(Logits(&b, b.Param(DType::kInt32, {batch, length}, "tokens")), "logits");
  return b.Finish();
}

absl::StatusOr<Plan> Gpt2TrainStep(int64_t batch, int64_t length) {
  Builder b;
  const Tensor logits = Logits(&b, b.Param(DType::kInt32, {batch, length}, "tokens"));
  const Tensor loss = logits.CrossEntropy(b.Param(DType::kInt32, {batch, length}, "labels"));
  optim::Adam(&b, b.trainable(), Gradients(loss, b.trainable()));
  b.Output(loss, "loss");
  return b.Finish();
}

}  // namespace telegrad::testing
