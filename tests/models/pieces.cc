// Parts of the models as plans of their own: softmax, layer normalization, attention, sums.
#include <limits>
#include <vector>

#include "engine/frontend/autograd/gradient.h"
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

namespace {

struct AttentionTensors {
  Tensor q, k, v, y;
};

AttentionTensors MakeAttention(Builder& b, const AttentionShape& s) {
  const Tensor q = b.Param(DType::kFloat32, {s.batch, s.heads, s.queries, s.channels}, "q");
  const Tensor k = b.Param(DType::kFloat32, {s.batch, s.groups, s.keys, s.channels}, "k");
  const Tensor v = b.Param(DType::kFloat32, {s.batch, s.groups, s.keys, s.channels}, "v");
  const bool causal = s.seen == Seen::kCausal, grouped = s.groups != s.heads;
  Tensor mask;
  if (s.seen == Seen::kWindow || s.seen == Seen::kAlibi) {
    const Tensor from = b.Iota(DType::kInt32, s.queries).Unsqueeze(-1);
    const Tensor to = b.Iota(DType::kInt32, s.keys), back = from - to;
    mask = back.Ge(0);
    if (s.seen == Seen::kWindow) {
      mask = mask & back.Lt(s.window);
    } else {
      const Tensor head = (b.Iota(DType::kInt32, s.heads) + 1).Cast(DType::kFloat32);
      const Tensor slope = (head * (-8.0 / static_cast<double>(s.heads))).Exp2();
      const Tensor bias = slope.Reshape({s.heads, 1, 1}) * back.Cast(DType::kFloat32) * -1.0;
      mask = mask.Where(bias, -std::numeric_limits<double>::infinity());
    }
  }
  return {q, k, v, q.ScaledDotProductAttention(k, v, mask, causal, {}, grouped)};
}

}  // namespace

absl::StatusOr<Plan> Attention(const AttentionShape& s) {
  Builder b;
  b.Output(MakeAttention(b, s).y, "y");
  return b.Finish();
}

absl::StatusOr<Plan> AttentionStep(const AttentionShape& s) {
  Builder b;
  const AttentionTensors of = MakeAttention(b, s);
  const Tensor seed = b.Param(DType::kFloat32, {s.batch, s.heads, s.queries, s.channels}, "dy");
  const std::vector<Tensor> gradients =
      Gradients(std::vector{of.y}, std::vector{seed}, std::vector{of.q, of.k, of.v});
  b.Output(of.y, "y");
  b.Output(gradients[0], "dq");
  b.Output(gradients[1], "dk");
  b.Output(gradients[2], "dv");
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
