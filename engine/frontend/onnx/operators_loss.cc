// Losses of class labels: the scores have classes on axis 1, the labels have no such axis.
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// The loss of log-probabilities, in their type.
absl::StatusOr<Tensor> NegativeLogLikelihood(NodeContext& c, const Tensor& log) {
  TG_ASSIGN_OR_RETURN(const Tensor labels, c.Input(1));
  TG_ASSIGN_OR_RETURN(const std::string_view reduction, c.String("reduction", "mean"));
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    return InvalidArgument("'reduction' is '", reduction, "', expected none, sum or mean");
  }
  if (!IsInt(labels.dtype()) || labels.rank() + 1 != log.rank()) {
    return InvalidArgument("labels of type ", Name(labels.dtype()), " and shape ",
                           ToString(labels.shape()), " for scores of shape ", ToString(log.shape()),
                           ", expected integers without axis 1");
  }
  Tensor label = labels, weight;
  Tensor counts = c.builder().Full(log.dtype(), ToShape(labels.shape()), 1);
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(weight, c.FloatInput(2));
    if (weight.rank() != 1 || weight.dim(0) != log.dim(1)) {
      return InvalidArgument("the weights have shape ", ToString(weight.shape()), " for ",
                             log.dim(1), " classes");
    }
  }
  Tensor kept;
  if (c.HasAttribute("ignore_index")) {
    TG_ASSIGN_OR_RETURN(const int64_t ignored, c.Int("ignore_index", 0));
    kept = labels.Cast(DType::kInt64).Ne(ignored);
    label = kept.Where(labels, 0);
  }
  if (weight.valid()) counts = weight.Cast(log.dtype()).Gather(label);
  if (kept.valid()) counts = kept.Where(counts, 0.0);
  const Tensor picked = log.TakeAlong(1, label.Unsqueeze(1)).Squeeze(1);
  // A label that is left out may meet an infinite score, which must not become NaN.
  const Tensor loss = counts.Ne(0).Where(-picked * counts, 0.0);
  if (reduction == "none") return loss;
  if (reduction == "sum") return loss.Sum();
  return loss.Sum() / counts.Sum();
}

}  // namespace

absl::Status NegativeLogLikelihoodLossOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  if (x.rank() < 2) return InvalidArgument("the input has no classes: ", ToString(x.shape()));
  TG_ASSIGN_OR_RETURN(const Tensor loss, NegativeLogLikelihood(c, x.Cast(ComposedType(x.dtype()))));
  return c.Output(loss.Cast(x.dtype()));
}

// The logarithms of the probabilities are a result too.
absl::Status SoftmaxCrossEntropyLossOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  if (x.rank() < 2) return InvalidArgument("the input has no classes: ", ToString(x.shape()));
  const Tensor log = x.Cast(ComposedType(x.dtype())).LogSoftmax(1);
  TG_ASSIGN_OR_RETURN(const Tensor loss, NegativeLogLikelihood(c, log));
  TG_RETURN_IF_ERROR(c.Output(loss.Cast(x.dtype())));
  return c.Output(log.Cast(x.dtype()));
}

}  // namespace telegrad::onnx
