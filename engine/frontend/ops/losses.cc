// Losses, with PyTorch's meaning of their options. Logarithms of probabilities are taken from
// logits where there are some; of probabilities themselves they are bounded, so that values and
// gradients are finite at 0 and 1.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/ops/composed.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

Tensor Reduced(const Tensor& loss, Reduction reduction) {
  if (reduction == Reduction::kNone) return loss;
  return reduction == Reduction::kSum ? loss.Sum() : loss.Mean();
}

// Elementwise losses: prediction and target of one float type and shape.
template <typename F>
Tensor Pairwise(std::string_view name, const Tensor& x, const Tensor& target, Reduction reduction,
                F f) {
  return Composed(name, x, target,
                  [&](const Tensor& a, const Tensor& b) { return Reduced(f(a, b), reduction); });
}

// log x, not below -100, where the gradient is 0 (PyTorch bounds it there as well).
Tensor BoundedLog(const Tensor& x, const Tensor& log) { return x.Gt(3.7835e-44).Where(log, -100); }

// What losses over classes need: classes are the last axis of `log_p`; label -1 stands for none.
struct Classes {
  Tensor log_p;   // [..., classes]
  Tensor labels;  // [...], integers
  Tensor used;    // [...], bool: the label counts
  Tensor weight;  // [classes] or empty
};

// [..., classes] -> [...], the element of the label's class.
Tensor PickLabels(const Tensor& of, const Tensor& labels) {
  const Tensor hit = labels.OneHot(of.dim(-1));
  return hit.Where(of, of.Like(0)).Sum({-1});
}

Tensor OverClasses(const Classes& c, Reduction reduction, double smoothing) {
  Tensor scale = c.used.Cast(c.log_p.dtype());
  Tensor spread = c.log_p;
  if (c.weight.valid()) {
    const Tensor weight = c.weight.Cast(c.log_p.dtype());
    scale = scale * PickLabels(weight.Expand(c.log_p.dims()), c.labels);
    spread = spread * weight;
  }
  Tensor loss = -(PickLabels(c.log_p, c.labels) * scale);
  if (smoothing != 0) {
    const Tensor even = -(spread.Mean({-1}) * c.used.Cast(c.log_p.dtype()));
    loss = loss * (1 - smoothing) + even * smoothing;
  }
  if (reduction == Reduction::kNone) return loss;
  return reduction == Reduction::kSum ? loss.Sum() : loss.Sum() / scale.Sum();
}

// The class axis of PyTorch's losses is 1, 0 without a batch; moved to the end.
Tensor ClassesLast(const Tensor& x) {
  if (x.rank() < 2) return x;
  Axes order;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != 1) order.push_back(i);
  }
  order.push_back(1);
  return x.Permute(order);
}

bool IsLabels(const Tensor& labels, const Dims& logits) {
  Dims expected = logits;
  expected.pop_back();
  return IsInt(labels.dtype()) && labels.dims() == expected;
}

// Checks the operands of a loss over classes: logits with the classes last, labels, weights.
bool Check(std::string_view name, const Tensor& logits, const Tensor& labels,
           const Tensor& weight) {
  Builder* builder = logits.builder();
  if (builder == nullptr) return false;
  if (!logits.valid() || !labels.valid() || logits.rank() == 0 || !IsFloat(logits.dtype()) ||
      !IsLabels(labels, logits.dims())) {
    builder->Fail(InvalidArgument(name, ": ", Name(logits.dtype()), " ", ToString(logits.dims()),
                                  ", with the classes on the last axis, needs integer labels of "
                                  "all its other axes, got ",
                                  Name(labels.dtype()), " ", ToString(labels.dims())));
    return false;
  }
  if (weight.builder() != nullptr && (weight.rank() != 1 || weight.dim(0) != logits.dim(-1))) {
    builder->Fail(InvalidArgument(name, ": ", logits.dim(-1), " classes with weights ",
                                  ToString(weight.dims()), ", expected one of each"));
    return false;
  }
  return true;
}

Tensor Used(const Tensor& labels, std::optional<int64_t> ignore) {
  const Tensor all = labels.builder()->Full(DType::kBool, labels.dims(), true);
  if (!ignore) return all;
  // In 64 bits, so that every label to be ignored can be compared.
  if (labels.dtype() == DType::kUInt64 && *ignore < 0) return all;
  const DType wide = labels.dtype() == DType::kUInt64 ? DType::kUInt64 : DType::kInt64;
  return labels.Cast(wide).Ne(labels.builder()->Const(wide, *ignore));
}

Tensor ToFloat(const Tensor& x) { return x.Cast(FloatType(x.dtype())); }

}  // namespace

Tensor Tensor::CrossEntropy(const Tensor& labels) const {
  if (!Check("cross_entropy", *this, labels, {})) return {};
  const Tensor picked = labels.OneHot(shape().back()).Where(LogSoftmax(), Like(0));
  return picked.Sum() * (-1.0 / static_cast<double>(std::max<int64_t>(labels.size(), 1)));
}

Tensor Tensor::CrossEntropy(const Tensor& labels, Reduction reduction, double label_smoothing,
                            std::optional<int64_t> ignore_index, const Tensor& weight) const {
  if (!valid() || !labels.valid() || IsInt(labels.dtype())) {
    const Tensor logits = valid() ? ClassesLast(ToFloat(*this)) : *this;
    if (!Check("cross_entropy", logits, labels, weight)) return {};
    return OverClasses({logits.LogSoftmax(), labels, Used(labels, ignore_index), weight}, reduction,
                       label_smoothing);
  }
  if (rank() == 0 || labels.dims() != dims()) {
    return builder_->Fail(InvalidArgument("cross_entropy: logits ", ToString(dims()),
                                          " and probabilities ", ToString(labels.dims()),
                                          ", expected the same shape with classes on axis 1"));
  }
  const Tensor log_p = ClassesLast(ToFloat(*this)).LogSoftmax();
  Tensor target = ClassesLast(labels.Cast(log_p.dtype()));
  const double classes = static_cast<double>(std::max<int64_t>(log_p.dim(-1), 1));
  if (label_smoothing != 0) target = target * (1 - label_smoothing) + label_smoothing / classes;
  if (weight.valid()) target = target * weight;
  return Reduced(-(log_p * target).Sum({-1}), reduction);
}

Tensor Tensor::SparseCategoricalCrossEntropy(const Tensor& labels, Reduction reduction,
                                             double label_smoothing, int64_t ignore_index) const {
  const Tensor logits = valid() ? ToFloat(*this) : *this;
  if (!Check("sparse_categorical_cross_entropy", logits, labels, {})) return {};
  return OverClasses({logits.LogSoftmax(), labels, Used(labels, ignore_index), {}}, reduction,
                     label_smoothing);
}

Tensor Tensor::NllLoss(const Tensor& labels, Reduction reduction,
                       std::optional<int64_t> ignore_index, const Tensor& weight) const {
  const Tensor log_p = valid() ? ClassesLast(ToFloat(*this)) : *this;
  if (!Check("nll_loss", log_p, labels, weight)) return {};
  return OverClasses({log_p, labels, Used(labels, ignore_index), weight}, reduction, 0);
}

Tensor Tensor::BinaryCrossEntropy(const Tensor& labels, Reduction reduction) const {
  return Pairwise(
      "binary_cross_entropy", *this, labels, reduction, [](const Tensor& p, const Tensor& y) {
        const Tensor q = 1.0 - p;
        const Tensor some = p.Gt(0).Where(p, 1), rest = q.Gt(0).Where(-p, 0);
        return -(y * BoundedLog(p, some.Log()) + (1.0 - y) * BoundedLog(q, rest.Log1p()));
      });
}

Tensor Tensor::BinaryCrossEntropyLogits(const Tensor& labels, Reduction reduction,
                                        const Tensor& positive_weight) const {
  return Pairwise("binary_cross_entropy_logits", *this, labels, reduction,
                  [&](const Tensor& x, const Tensor& y) {
                    Tensor positive = y * x.LogSigmoid();
                    if (positive_weight.builder() != nullptr) {
                      positive = positive * positive_weight.Cast(x.dtype());
                    }
                    return -(positive + (1.0 - y) * (-x).LogSigmoid());
                  });
}

Tensor Tensor::MseLoss(const Tensor& target, Reduction reduction) const {
  return Pairwise("mse_loss", *this, target, reduction,
                  [](const Tensor& a, const Tensor& b) { return (a - b).Square(); });
}

Tensor Tensor::L1Loss(const Tensor& target, Reduction reduction) const {
  return Pairwise("l1_loss", *this, target, reduction,
                  [](const Tensor& a, const Tensor& b) { return (a - b).Abs(); });
}

Tensor Tensor::SmoothL1Loss(const Tensor& target, Reduction reduction, double beta) const {
  return Pairwise("smooth_l1_loss", *this, target, reduction,
                  [&](const Tensor& a, const Tensor& b) {
                    const Tensor d = a - b, size = d.Abs();
                    if (beta == 0) return size;
                    return size.Lt(beta).Where(d * d * (0.5 / beta), size - 0.5 * beta);
                  });
}

Tensor Tensor::HuberLoss(const Tensor& target, Reduction reduction, double delta) const {
  return Pairwise("huber_loss", *this, target, reduction, [&](const Tensor& a, const Tensor& b) {
    const Tensor d = a - b, size = d.Abs();
    return size.Lt(delta).Where(d * d * 0.5, (size - 0.5 * delta) * delta);
  });
}

// A target of 0 adds 0, whatever this is.
Tensor Tensor::KlDiv(const Tensor& target, Reduction reduction) const {
  return Pairwise("kl_div", *this, target, reduction, [](const Tensor& log_q, const Tensor& p) {
    const Tensor some = p.Gt(0);
    return some.Where(p * (some.Where(p, 1).Log() - some.Where(log_q, 0)), 0);
  });
}

}  // namespace telegrad
