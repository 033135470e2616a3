// Matrix products and reductions.
#include <algorithm>
#include <numeric>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/shapes.h"

namespace telegrad::onnx {
namespace {

using SoftmaxMethod = Tensor (Tensor::*)(int64_t) const;

// Before opset 13 the axes from `axis` on are one, over which the elements sum to 1; from then on
// `axis` is the only one.
absl::Status AnySoftmax(NodeContext& c, SoftmaxMethod method) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  const bool single = c.opset() >= 13;
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", single ? -1 : 1));
  if (single) {
    TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("softmax", given, x.rank()));
    return c.Output((x.*method)(axis));
  }
  int64_t axis = given;
  if (axis != x.rank()) {
    TG_ASSIGN_OR_RETURN(axis, ResolveAxis("softmax", given, x.rank()));
  }
  const Shape shape = ToShape(x.shape());
  const Shape matrix = {NumElements(x.shape().first(axis)), NumElements(x.shape().subspan(axis))};
  return c.Output((x.Reshape(matrix).*method)(-1).Reshape(shape));
}

// f(x, axes, keepdim), with the axes as an attribute before opset `since` and an input from then
// on.
template <typename F>
absl::Status Reduce(NodeContext& c, int64_t since, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Axes axes, c.IntsOrInput("axes", 1, since));
  TG_ASSIGN_OR_RETURN(const int64_t keep, c.Int("keepdims", 1));
  TG_ASSIGN_OR_RETURN(const int64_t noop, c.Int("noop_with_empty_axes", 0));
  if (axes.empty()) {
    if (noop != 0) return c.Output(x);
    axes.resize(x.rank());
    std::iota(axes.begin(), axes.end(), 0);
  }
  return c.Output(f(x, axes, keep != 0));
}

}  // namespace

absl::Status SoftmaxOp(NodeContext& c) { return AnySoftmax(c, &Tensor::Softmax); }
absl::Status LogSoftmaxOp(NodeContext& c) { return AnySoftmax(c, &Tensor::LogSoftmax); }

absl::Status ReduceMeanOp(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) { return x.Mean(a, keep); });
}
absl::Status ReduceSumOp(NodeContext& c) {
  return Reduce(c, 13, [](const Tensor& x, const Axes& a, bool keep) { return x.Sum(a, keep); });
}
absl::Status ReduceMaxOp(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) { return x.Max(a, keep); });
}
absl::Status ReduceMinOp(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) { return x.Min(a, keep); });
}

absl::Status MatMulOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor a, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor b, c.Input(1));
  return c.Output(a.MatMul(b));
}

// alpha A' B' + beta C, where C broadcasts to the product.
absl::Status GemmOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor a, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(Tensor b, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 1));
  TG_ASSIGN_OR_RETURN(const float beta, c.Float("beta", 1));
  TG_ASSIGN_OR_RETURN(const int64_t transpose_a, c.Int("transA", 0));
  TG_ASSIGN_OR_RETURN(const int64_t transpose_b, c.Int("transB", 0));
  if (a.rank() != 2 || b.rank() != 2) {
    return InvalidArgument("the operands have shapes ", ToString(a.shape()), " and ",
                           ToString(b.shape()), ", expected matrices");
  }
  if (transpose_a != 0) a = a.Transpose();
  if (transpose_b != 0) b = b.Transpose();
  Tensor out = a.MatMul(b);
  if (alpha != 1) out = out * alpha;
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(Tensor bias, c.FloatInput(2));
    if (beta != 1) bias = bias * beta;
    const Shape shape = ToShape(out.shape());
    out = out + bias.Expand(shape);
  }
  return c.Output(out);
}

}  // namespace telegrad::onnx
