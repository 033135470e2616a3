// What the models are made of, each by itself.
#include "engine/frontend/nn/nn.h"
#include "engine/frontend/tensor/builder.h"
#include "tests/models/models.h"

namespace telegrad::testing {

absl::StatusOr<Plan> Softmax(int64_t rows, int64_t columns) {
  Builder b;
  b.Output(b.Param(DType::kFloat32, {rows, columns}, "x").Softmax(), "y");
  return b.Finish();
}

absl::StatusOr<Plan> LayerNorm(int64_t rows, int64_t columns) {
  Builder b;
  b.Output(nn::LayerNorm(&b, "norm", columns)(b.Param(DType::kFloat32, {rows, columns}, "x")), "y");
  return b.Finish();
}

absl::StatusOr<Plan> Attention(int64_t heads, int64_t length, int64_t channels) {
  Builder b;
  const auto input = [&](const char* name) {
    return b.Param(DType::kFloat32, {heads, length, channels}, name);
  };
  const Tensor q = input("q"), k = input("k"), v = input("v");
  b.Output(q.ScaledDotProductAttention(k, v), "y");
  return b.Finish();
}

absl::StatusOr<Plan> Sums(int64_t elements) {
  Builder b;
  const auto input = [&](const char* name) { return b.Param(DType::kFloat32, {elements}, name); };
  const Tensor ab = input("a") + input("b");
  b.Output(ab + input("c"), "abc");
  b.Output(ab + input("d"), "abd");
  return b.Finish();
}

}  // namespace telegrad::testing
