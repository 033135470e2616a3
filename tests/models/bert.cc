// BERT adds the result of attention and of the perceptron to what came in, and normalizes the sums.
#include "engine/base/strings.h"
#include "tests/models/models.h"
#include "tests/models/transformer.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kLayers = 12, kHeads = 12, kChannels = 768;
constexpr int64_t kTokens = 30522, kPositions = 512, kTypes = 2;
constexpr double kEpsilon = 1e-12;

Tensor Norm(Builder* b, const std::string& name, const Tensor& x) {
  return nn::LayerNorm(b, name, kChannels, {}, kEpsilon)(x);
}

// `bias` [batch, 1, 1, length] is added to every row of scores.
Tensor Attention(Builder* b, const std::string& name, const Tensor& x, const Tensor& bias) {
  const auto project = [&](const char* what) {
    return SplitHeads(nn::Linear(b, StrCat(name, what), kChannels, kChannels)(x), kHeads);
  };
  const Tensor q = project(".query"), k = project(".key"), v = project(".value");
  return Attend(b, name, q, k, v, bias, /*causal=*/false);
}

}  // namespace

absl::StatusOr<Plan> Bert(int64_t batch, int64_t length) {
  Builder b;
  const Tensor tokens = b.Param(DType::kInt32, {batch, length}, "tokens");
  const Tensor types = b.Param(DType::kInt32, {batch, length}, "types");
  const Tensor mask = b.Param(DType::kFloat32, {batch, length}, "mask");
  const Tensor bias = ((1.0 - mask) * -10000.0).Reshape({batch, 1, 1, length});
  Tensor x = Table(&b, "tokens.table", kTokens, kChannels).Gather(tokens) +
             Table(&b, "positions.table", kPositions, kChannels).Slice(0, 0, length) +
             Table(&b, "types.table", kTypes, kChannels).Gather(types);
  x = Norm(&b, "norm", x);
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string name = StrCat("layer", i);
    x = Norm(&b, name + ".norm1", x + Attention(&b, name + ".attention", x, bias));
    x = Norm(&b, name + ".norm2", x + Perceptron(&b, name + ".perceptron", x, &Tensor::Gelu));
  }
  b.Output(x, "hidden");
  const Tensor first = x.Slice(1, 0, 1).Reshape({batch, kChannels});
  b.Output(nn::Linear(&b, "pooler", kChannels, kChannels)(first).Tanh(), "pooled");
  return b.Finish();
}

}  // namespace telegrad::testing
