// Normalizations, as compositions of means.
#include <algorithm>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// A scale or shift by channel of `x` [N, C, ...].
absl::StatusOr<Tensor> ByChannel(NodeContext& c, int i, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const Tensor input, c.FloatInput(i));
  if (input.size() != x.dim(1)) {
    return InvalidArgument("input ", i, " has shape ", ToString(input.shape()), " for ", x.dim(1),
                           " channels");
  }
  return AlongAxis(input, 1, x.rank());
}

// The type that `stash_type` says, at least x's.
absl::StatusOr<DType> StashType(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const int64_t stash, c.Int("stash_type", 1));
  TG_ASSIGN_OR_RETURN(const DType type, TypeOf(stash));
  if (!IsFloat(type)) {
    return Unimplemented("'stash_type' is ", stash, ", supported are types of floats");
  }
  return ByteSize(x.dtype()) > ByteSize(type) ? x.dtype() : type;
}

// The axes of x from `axis` on.
absl::StatusOr<Axes> AxesFromAttribute(NodeContext& c, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", -1));
  TG_ASSIGN_OR_RETURN(const int64_t first, ResolveAxis("normalization", given, x.rank()));
  Axes axes = AllAxes(x.rank());
  axes.erase(axes.begin(), axes.begin() + first);
  return axes;
}

struct BatchStatistics {
  Tensor mean, variance;  // [C]
};

// Of every axis but the channels; the variance is that of the population.
BatchStatistics StatisticsOf(const Tensor& x) {
  Axes axes = AllAxes(x.rank());
  axes.erase(axes.begin() + 1);
  const auto [variance, mean] = x.VarMean(axes, 0);
  return {mean, variance};
}

// In opsets before 14 a node trains if `is_test` (before opset 7) is 0 or if it has the results of
// training.
absl::StatusOr<bool> TrainsBatch(NodeContext& c) {
  if (c.opset() >= 14) {
    TG_ASSIGN_OR_RETURN(const int64_t training, c.Int("training_mode", 0));
    return training != 0;
  }
  if (c.opset() < 7) {
    TG_ASSIGN_OR_RETURN(const int64_t test, c.Int("is_test", 0));
    return test == 0;
  }
  return std::ranges::any_of(c.node().outputs.begin() + 1, c.node().outputs.end(),
                             [](std::string_view name) { return !name.empty(); });
}

}  // namespace

// (x - mean) scale / sqrt(variance + epsilon) + bias, each by channel. In training the mean and
// variance are those of the batch, and the running ones move by 1 - momentum towards them.
absl::Status BatchNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  if (x.rank() < 2) return InvalidArgument("the input has no channels: ", ToString(x.shape()));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  TG_ASSIGN_OR_RETURN(const float momentum, c.Float("momentum", 0.9f));
  TG_ASSIGN_OR_RETURN(const int64_t spatial, c.Int("spatial", 1));
  TG_ASSIGN_OR_RETURN(const bool training, TrainsBatch(c));
  if (spatial != 1) return Unimplemented("'spatial' is 0, supported is 1: statistics of a channel");
  Tensor by_channel[4];
  for (int i = 0; i < 4; ++i) {
    TG_ASSIGN_OR_RETURN(by_channel[i], c.FloatInput(i + 1));
  }
  const auto& [scale, bias, mean, variance] = by_channel;
  if (!training) {
    return c.Output(x.BatchNorm(mean, variance, scale, bias, epsilon).Cast(x.dtype()));
  }
  const DType wide = ComposedType(x.dtype());
  const BatchStatistics batch = StatisticsOf(x.Cast(wide));
  const Tensor out = x.Cast(wide).BatchNorm(batch.mean, batch.variance, scale.Cast(wide),
                                            bias.Cast(wide), epsilon);
  const auto moved = [&](const Tensor& running, const Tensor& now) {
    const Tensor sum = running.Cast(wide) * momentum + now * (1.0f - momentum);
    return sum.Cast(running.dtype());
  };
  TG_RETURN_IF_ERROR(c.Output(out.Cast(x.dtype())));
  TG_RETURN_IF_ERROR(c.Output(moved(mean, batch.mean)));
  TG_RETURN_IF_ERROR(c.Output(moved(variance, batch.variance)));
  if (c.opset() >= 14) return absl::OkStatus();
  TG_RETURN_IF_ERROR(c.Output(batch.mean.Cast(mean.dtype())));
  return c.Output(batch.variance.Cast(variance.dtype()));
}

// Over the axes from `axis` on, computed in the type `stash_type`. Mean and the inverse standard
// deviation are results too.
absl::Status LayerNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Axes axes, AxesFromAttribute(c, x));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  TG_ASSIGN_OR_RETURN(const DType wide, StashType(c, x));
  const Tensor in = x.Cast(wide);
  const Tensor mean = in.Mean(axes, true);
  const Tensor centered = in - mean;
  const Tensor inverse = ((centered * centered).Mean(axes, true) + epsilon).Sqrt().Reciprocal();
  Tensor out = (centered * inverse).Cast(x.dtype()) * scale;
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(2));
    out = out + bias;
  }
  TG_RETURN_IF_ERROR(c.Output(out));
  TG_RETURN_IF_ERROR(c.Output(mean));
  return c.Output(inverse);
}

// x over its root mean square, times the scale, whose type the result has.
absl::Status RmsNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Axes axes, AxesFromAttribute(c, x));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  TG_ASSIGN_OR_RETURN(const DType wide, StashType(c, x));
  const Tensor in = x.Cast(wide);
  const Tensor root = ((in * in).Mean(axes, true) + epsilon).Sqrt();
  return c.Output((in / root).Cast(scale.dtype()) * scale);
}

// Each channel of each example by itself.
absl::Status InstanceNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  if (x.rank() < 3) return InvalidArgument("the input has no spatial axes: ", ToString(x.shape()));
  TG_ASSIGN_OR_RETURN(const Tensor scale, ByChannel(c, 1, x));
  TG_ASSIGN_OR_RETURN(const Tensor bias, ByChannel(c, 2, x));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  return c.Output((x.GroupNorm(x.dim(1), epsilon) * scale + bias).Cast(x.dtype()));
}

// Scale and bias are one for each group before opset 21, one for each channel from then on.
absl::Status GroupNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Attribute* groups, c.Required("num_groups", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  if (x.rank() < 2 || groups->i < 1 || x.dim(1) % groups->i != 0) {
    return InvalidArgument("'num_groups' is ", groups->i, " for shape ", ToString(x.shape()),
                           ", expected a divisor of the channels, axis 1");
  }
  DType wide = ComposedType(x.dtype());
  if (c.opset() >= 21) {
    TG_ASSIGN_OR_RETURN(wide, StashType(c, x));
  }
  Tensor parts[2];
  for (int i = 0; i < 2; ++i) {
    TG_ASSIGN_OR_RETURN(parts[i], c.FloatInput(i + 1));
    if (c.opset() < 21 && parts[i].rank() == 1 && parts[i].size() == groups->i) {
      parts[i] = parts[i].RepeatInterleave(x.dim(1) / groups->i, 0);
    }
    if (parts[i].size() != x.dim(1)) {
      return InvalidArgument("input ", i + 1, " has shape ", ToString(parts[i].shape()), " for ",
                             x.dim(1), " channels in ", groups->i, " groups");
    }
    parts[i] = AlongAxis(parts[i], 1, x.rank());
  }
  const Tensor normal = x.Cast(wide).GroupNorm(groups->i, epsilon).Cast(x.dtype());
  return c.Output((normal * parts[0] + parts[1]).Cast(x.dtype()));
}

// x over its norm along an axis; 0 where that is 0.
absl::Status LpNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", -1));
  TG_ASSIGN_OR_RETURN(const int64_t p, c.Int("p", 2));
  if (p != 1 && p != 2) return InvalidArgument("'p' is ", p, ", expected 1 or 2");
  return c.Output(Composed(x, [&](const Tensor& t) {
    const Tensor norm = t.Norm({axis}, static_cast<double>(p), true);
    return norm.Eq(0).Where(0.0, t / norm);
  }));
}

// (x - mean) / (standard deviation + 1e-9) over the axes.
absl::Status MeanVarianceNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Axes axes, c.Ints("axes", {0, 2, 3}));
  return c.Output(Composed(x, [&](const Tensor& t) {
    const auto [variance, mean] = t.VarMean(axes, 0, true);
    return (t - mean) / (variance.Sqrt() + 1e-9);
  }));
}

// x / (bias + alpha / size * (sum of squares of `size` channels around))^beta.
absl::Status LrnOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Attribute* size, c.Required("size", AttributeType::kInt));
  TG_ASSIGN_OR_RETURN(const float alpha, c.Float("alpha", 1e-4f));
  TG_ASSIGN_OR_RETURN(const float beta, c.Float("beta", 0.75f));
  TG_ASSIGN_OR_RETURN(const float bias, c.Float("bias", 1));
  if (x.rank() < 2) return InvalidArgument("the input has no channels: ", ToString(x.shape()));
  if (size->i < 1 || size->i > kMaxWindowNumber) return InvalidArgument("'size' is ", size->i);
  Axes last = AllAxes(x.rank());
  std::rotate(last.begin() + 1, last.begin() + 2, last.end());
  const Tensor windows =
      (x * x).Permute(last).Windows({size->i}, {.pads = {(size->i - 1) / 2, size->i / 2}});
  Axes back = AllAxes(x.rank());
  std::rotate(back.begin() + 1, back.end() - 1, back.end());
  const Tensor sum = windows.Sum({-1}).Permute(back);
  const Tensor scale = sum * (alpha / static_cast<double>(size->i)) + bias;
  return c.Output(x / scale.Pow(x.Like(beta)));
}

}  // namespace telegrad::onnx
