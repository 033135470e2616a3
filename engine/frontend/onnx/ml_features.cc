// ai.onnx.ml: scalers and other operators on features of numbers.
#include <algorithm>
#include <cmath>

#include "engine/frontend/onnx/ml_common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

// A list of floats as a weight [n]; it broadcasts to the last axis of `x`, or is one number.
absl::StatusOr<Tensor> FeatureList(NodeContext& c, const std::vector<float>& list,
                                   const Tensor& x) {
  const auto n = static_cast<int64_t>(list.size());
  if (n != 1 && (x.rank() < 1 || n != x.dim(-1))) {
    return InvalidArgument(n, " numbers for features of shape ", ToString(x.shape()));
  }
  TG_ASSIGN_OR_RETURN(const Tensor out, c.Weight(HostTensor::Of<float>({n}, list)));
  return out.Reshape({n});
}

}  // namespace

absl::Status MlScalerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const auto offset, c.Floats("offset", {0}));
  TG_ASSIGN_OR_RETURN(const auto scale, c.Floats("scale", {1}));
  const Tensor wide = x.Cast(DType::kFloat32);
  TG_ASSIGN_OR_RETURN(const Tensor shift, FeatureList(c, offset, wide));
  TG_ASSIGN_OR_RETURN(const Tensor factor, FeatureList(c, scale, wide));
  return c.Output((wide - shift) * factor);
}

absl::Status MlBinarizerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const float threshold, c.Float("threshold", 0));
  return c.Output(x.Cast(ComposedType(x.dtype())).Gt(threshold).Cast(x.dtype()));
}

// Rows divided by their largest element, the sum of magnitudes or the root of the sum of squares.
absl::Status MlNormalizerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const std::string_view norm, c.String("norm", "MAX"));
  const Tensor wide = x.Cast(DType::kFloat32);
  Tensor size;
  if (norm == "MAX") {
    size = wide.Max({-1}, true);
  } else if (norm == "L1") {
    size = wide.Abs().Sum({-1}, true);
  } else if (norm == "L2") {
    size = (wide * wide).Sum({-1}, true).Sqrt();
  } else {
    return InvalidArgument("'norm' is '", norm, "', expected MAX, L1 or L2");
  }
  return c.Output(wide / size.Eq(0).Where(1, size));
}

// Elements equal to one number, or NaN, replaced by another of each feature.
absl::Status MlImputerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  if (IsFloat(x.dtype())) {
    TG_ASSIGN_OR_RETURN(const auto imputed, c.Floats("imputed_value_floats", {}));
    TG_ASSIGN_OR_RETURN(const float replaced, c.Float("replaced_value_float", 0));
    TG_ASSIGN_OR_RETURN(const Tensor values, FeatureList(c, imputed, x));
    const Tensor missing = std::isnan(replaced) ? x.IsNan() : x.Eq(replaced);
    return c.Output(missing.Where(values.Cast(x.dtype()), x));
  }
  TG_ASSIGN_OR_RETURN(const auto imputed, c.Ints("imputed_value_int64s", {}));
  TG_ASSIGN_OR_RETURN(const int64_t replaced, c.Int("replaced_value_int64", 0));
  const auto n = static_cast<int64_t>(imputed.size());
  if (n != 1 && (x.rank() < 1 || n != x.dim(-1))) {
    return InvalidArgument(n, " values for features of shape ", ToString(x.shape()));
  }
  TG_ASSIGN_OR_RETURN(const Tensor values, c.Weight(HostTensor::Of<int64_t>({n}, imputed)));
  return c.Output(x.Eq(replaced).Where(values.Reshape({n}).Cast(x.dtype()), x));
}

// Columns of the last axis.
absl::Status MlArrayFeatureExtractorOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Input(1));
  const Tensor rows = x.rank() == 1 ? x.Unsqueeze(0) : x;
  return c.Output(rows.IndexSelect(rows.rank() - 1, index.Flatten()));
}

absl::Status MlFeatureVectorizerOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const auto sizes, c.Ints("inputdimensions", {}));
  std::vector<Tensor> parts;
  for (int i = 0; i < c.num_inputs(); ++i) {
    TG_ASSIGN_OR_RETURN(const Tensor given, c.Input(i));
    const Tensor x = given.rank() == 1 ? given.Unsqueeze(0) : given.Flatten(1, -1);
    if (static_cast<size_t>(i) < sizes.size() && sizes[i] != x.dim(1)) {
      return InvalidArgument("input ", i, " has ", x.dim(1), " features, 'inputdimensions' says ",
                             sizes[i]);
    }
    parts.push_back(x.Cast(DType::kFloat32));
  }
  return c.Output(Concat(parts, 1));
}

}  // namespace telegrad::onnx
