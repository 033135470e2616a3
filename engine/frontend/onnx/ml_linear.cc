// ai.onnx.ml: linear models.
#include <algorithm>

#include "engine/frontend/onnx/ml_common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// X coefficients' + intercepts.
absl::StatusOr<Tensor> LinearScores(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const auto coefficients, c.Floats("coefficients", {}));
  TG_ASSIGN_OR_RETURN(const auto intercepts, c.Floats("intercepts", {}));
  const auto n = static_cast<int64_t>(coefficients.size());
  if (n == 0 || x.dim(1) == 0 || n % x.dim(1) != 0) {
    return InvalidArgument(n, " coefficients for ", x.dim(1), " features");
  }
  const int64_t targets = n / x.dim(1);
  TG_ASSIGN_OR_RETURN(const Tensor matrix, FloatWeight(c, {targets, x.dim(1)}, coefficients));
  const Tensor out = x.Cast(DType::kFloat32).MatMul(matrix.Transpose());
  if (intercepts.empty()) return out;
  if (static_cast<int64_t>(intercepts.size()) != targets) {
    return InvalidArgument(intercepts.size(), " intercepts for ", targets, " targets");
  }
  TG_ASSIGN_OR_RETURN(const Tensor bias, FloatWeight(c, {targets}, intercepts));
  return out + bias;
}

}  // namespace

absl::Status MlLinearRegressorOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const Tensor scores, LinearScores(c, x));
  TG_ASSIGN_OR_RETURN(const int64_t targets, c.Int("targets", 1));
  if (targets != scores.dim(1)) return InvalidArgument("'targets' is ", targets);
  TG_ASSIGN_OR_RETURN(const Tensor out, PostTransform(c, scores));
  return c.Output(out);
}

// The label of the largest score; of two labels and one score, the second if it is above 0.
absl::Status MlLinearClassifierOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, Features(c));
  TG_ASSIGN_OR_RETURN(const Labels labels, ReadLabels(c, "classlabels"));
  TG_ASSIGN_OR_RETURN(Tensor scores, LinearScores(c, x));
  c.Ignore("multi_class");  // how the model was trained
  TG_ASSIGN_OR_RETURN(const std::string_view transform, c.String("post_transform", "NONE"));
  const int64_t n = labels.size();
  if (n == 2 && scores.dim(1) == 1) {
    const Tensor chosen = scores.Squeeze(1).Gt(0).Cast(DType::kInt64);
    TG_RETURN_IF_ERROR(OutputLabels(c, labels, Values::FromTensor(chosen)));
    TG_ASSIGN_OR_RETURN(const Tensor second, PostTransform(transform, scores));
    const Tensor first = transform == "LOGISTIC" ? 1 - second : -second;
    return c.Output(Concat(std::vector<Tensor>{first, second}, 1));
  }
  if (n != scores.dim(1)) return InvalidArgument(n, " labels for ", scores.dim(1), " scores");
  const Tensor chosen = scores.ArgMax(1).Cast(DType::kInt64);
  TG_RETURN_IF_ERROR(OutputLabels(c, labels, Values::FromTensor(chosen)));
  TG_ASSIGN_OR_RETURN(scores, PostTransform(transform, scores));
  return c.Output(scores);
}

}  // namespace telegrad::onnx
