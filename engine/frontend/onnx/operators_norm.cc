// Normalizations, as compositions of means.
#include <algorithm>
#include <numeric>

#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/shapes.h"

namespace telegrad::onnx {
namespace {

// A scale or shift by channel of `x` [N, C, ...].
absl::StatusOr<Tensor> ByChannel(NodeContext& c, int i, const Tensor& x) {
  TG_ASSIGN_OR_RETURN(const Tensor input, c.FloatInput(i));
  Shape column(x.rank() - 1, 1);
  column[0] = x.dim(1);
  return input.Reshape(column);
}

}  // namespace

// (x - mean) scale / sqrt(variance + epsilon) + bias, each by channel.
absl::Status BatchNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  if (x.rank() < 2) return InvalidArgument("the input has no channels: ", ToString(x.shape()));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  TG_ASSIGN_OR_RETURN(const int64_t training, c.Int("training_mode", 0));
  TG_ASSIGN_OR_RETURN(const int64_t spatial, c.Int("spatial", 1));
  c.Ignore("momentum");  // it concerns training
  if (training != 0)
    return Unimplemented("training mode is not supported; export the model for inference");
  if (spatial != 1) return Unimplemented("'spatial' is 0, supported is 1: statistics of a channel");
  Tensor by_channel[4];
  for (int i = 0; i < 4; ++i) {
    TG_ASSIGN_OR_RETURN(by_channel[i], c.FloatInput(i + 1));
  }
  const auto& [scale, bias, mean, variance] = by_channel;
  return c.Output(x.BatchNorm(mean, variance, scale, bias, epsilon));
}

// Over the axes from `axis` on, computed in the type `stash_type`. Mean and the inverse standard
// deviation are results too.
absl::Status LayerNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor scale, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", -1));
  TG_ASSIGN_OR_RETURN(const int64_t first, ResolveAxis("layer_norm", given, x.rank()));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  TG_ASSIGN_OR_RETURN(const int64_t stash, c.Int("stash_type", 1));
  const auto type =
      stash >= 1 && stash <= 1000 ? DTypeFromOnnx(static_cast<int>(stash)) : std::nullopt;
  if (!type || !IsFloat(*type))
    return Unimplemented("'stash_type' is ", stash, ", supported are types of floats");
  const DType wide = ByteSize(x.dtype()) > ByteSize(*type) ? x.dtype() : *type;
  Axes axes(x.rank() - first);
  std::iota(axes.begin(), axes.end(), first);
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

// Each channel of each example by itself.
absl::Status InstanceNormalizationOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  if (x.rank() < 3) return InvalidArgument("the input has no spatial axes: ", ToString(x.shape()));
  TG_ASSIGN_OR_RETURN(const Tensor scale, ByChannel(c, 1, x));
  TG_ASSIGN_OR_RETURN(const Tensor bias, ByChannel(c, 2, x));
  TG_ASSIGN_OR_RETURN(const float epsilon, c.Float("epsilon", 1e-5f));
  return c.Output(x.GroupNorm(x.dim(1), epsilon) * scale + bias);
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
  Axes last(x.rank());
  std::iota(last.begin(), last.end(), 0);
  std::rotate(last.begin() + 1, last.begin() + 2, last.end());
  const Tensor windows =
      (x * x).Permute(last).Windows({size->i}, {.pads = {(size->i - 1) / 2, size->i / 2}});
  Axes back(x.rank());
  std::iota(back.begin(), back.end(), 0);
  std::rotate(back.begin() + 1, back.end() - 1, back.end());
  const Tensor sum = windows.Sum({-1}).Permute(back);
  const Tensor scale = sum * (alpha / static_cast<double>(size->i)) + bias;
  return c.Output(x / scale.Pow(x.Like(beta)));
}

}  // namespace telegrad::onnx
