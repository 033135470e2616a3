// Attention whose scores and probabilities a model's own graphs change.
#include <cmath>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

absl::StatusOr<Tensor> Modify(NodeContext& c, std::string_view attribute, const Tensor& x) {
  if (!c.HasAttribute(attribute)) return x;
  TG_ASSIGN_OR_RETURN(const GraphProto* body, c.Body(attribute));
  TG_ASSIGN_OR_RETURN(const auto results, c.ImportGraph(*body, {Values::FromTensor(x)}));
  if (results.size() != 1) {
    return InvalidArgument("'", attribute, "' has ", results.size(), " results, expected one");
  }
  TG_ASSIGN_OR_RETURN(const Tensor out, c.values().ToTensor(results[0].get()));
  if (out.dtype() == x.dtype() && std::ranges::equal(out.shape(), x.shape())) return out;
  return InvalidArgument("'", attribute, "' makes ", Name(out.dtype()), " ", ToString(out.shape()),
                         " of ", Name(x.dtype()), " ", ToString(x.shape()));
}

}  // namespace

// softmax(change(Q K^T scale)) V; a head of keys and values serves several of the queries in a row.
absl::Status FlexAttentionOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor q, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(Tensor k, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(Tensor v, c.FloatInput(2));
  if (q.rank() != 4 || k.rank() != 4 || v.rank() != 4) {
    return InvalidArgument("an input is not [batch, heads, length, size]: ", ToString(q.shape()),
                           ", ", ToString(k.shape()), ", ", ToString(v.shape()));
  }
  const DType wide = q.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  TG_ASSIGN_OR_RETURN(const DType type, TypeAttribute(c, "softmax_precision", wide));
  if (!IsFloat(type)) return InvalidArgument("'softmax_precision' is ", Name(type));
  const double root = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(q.dim(3), 1)));
  TG_ASSIGN_OR_RETURN(const float scale, c.Float("scale", static_cast<float>(root)));
  if (k.dim(1) == 0 || q.dim(1) % k.dim(1) != 0 || v.dim(1) != k.dim(1)) {
    return InvalidArgument(q.dim(1), " heads of queries for ", k.dim(1), " of keys and ", v.dim(1),
                           " of values");
  }
  const int64_t group = q.dim(1) / k.dim(1);
  if (group > 1) {
    k = k.RepeatInterleave(group, 1);
    v = v.RepeatInterleave(group, 1);
  }
  const Tensor factor = q.Like(std::sqrt(static_cast<double>(scale)));
  Tensor scores = (q * factor).MatMul((k * factor).Transpose()).Cast(type);
  TG_RETURN_IF_ERROR(c.builder().status());
  TG_ASSIGN_OR_RETURN(scores, Modify(c, "score_mod", scores));
  TG_ASSIGN_OR_RETURN(const Tensor seen, Modify(c, "prob_mod", scores.Softmax(-1)));
  return c.Output(seen.MatMul(v.Cast(type)).Cast(q.dtype()));
}

}  // namespace telegrad::onnx
