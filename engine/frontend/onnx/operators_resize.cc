// Resize and Upsample. Each axis is resampled by itself: element o of the result is the sum of a
// few elements of the axis times weights, both computed on the host.
#include <algorithm>
#include <cmath>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxTaps = int64_t{1} << 26;  // of one axis: elements of the result times taps

struct ResizeRules {
  std::string_view mode, coordinates, nearest;
  bool antialias = false, exclude_outside = false;
  double cubic = -0.75, extrapolation = 0;
};

struct ResizeAxis {
  int64_t axis = 0, in = 0, out = 0;
  double scale = 1;
  double roi_begin = 0, roi_end = 1;
  Dim size = 1;  // `in`, or what each run decides up to it

  // Whether each element stays as it is.
  bool IsKept() const { return in == out && scale == 1 && roi_begin == 0 && roi_end == 1; }
};

std::vector<ResizeAxis> AxesOf(const Tensor& x, const Axes& numbers) {
  std::vector<ResizeAxis> axes;
  for (const int64_t i : numbers) {
    axes.push_back({.axis = i, .in = x.dim(i), .out = x.dim(i), .size = x.dims()[i]});
  }
  return axes;
}

// The position on the axis that element `o` of the result lies at.
absl::StatusOr<double> SourcePosition(const ResizeRules& rules, const ResizeAxis& a, double o) {
  const double out = a.scale * static_cast<double>(a.in), in = static_cast<double>(a.in);
  const std::string_view mode = rules.coordinates;
  if (mode == "half_pixel") return (o + 0.5) / a.scale - 0.5;
  if (mode == "pytorch_half_pixel") return a.out > 1 ? (o + 0.5) / a.scale - 0.5 : 0;
  if (mode == "asymmetric") return o / a.scale;
  if (mode == "tf_half_pixel_for_nn") return (o + 0.5) / a.scale;
  if (mode == "align_corners") return out == 1 ? 0 : o * (in - 1) / (out - 1);
  if (mode == "half_pixel_symmetric") {
    return in / 2 * (1 - static_cast<double>(a.out) / out) + (o + 0.5) / a.scale - 0.5;
  }
  if (mode == "tf_crop_and_resize") {
    const double extent = (a.roi_end - a.roi_begin) * (in - 1);
    return a.roi_begin * (in - 1) + (out == 1 ? extent / 2 : o * extent / (out - 1));
  }
  return InvalidArgument("'coordinate_transformation_mode' is '", mode, "'");
}

// Keys' kernel.
double Cubic(double x, double a) {
  x = std::abs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((x - 5) * x + 8) * x * a - 4 * a;
  return 0;
}

// The neighbours of `position` from `first` on, and their weights.
struct Taps {
  int64_t first = 0;
  std::vector<double> weights;
};

absl::StatusOr<int64_t> Nearest(std::string_view mode, double position) {
  const double below = std::floor(position), part = position - below;
  if (mode == "floor") return static_cast<int64_t>(below);
  if (mode == "ceil") return static_cast<int64_t>(std::ceil(position));
  if (mode == "round_prefer_floor") return static_cast<int64_t>(below) + (part > 0.5);
  if (mode == "round_prefer_ceil") return static_cast<int64_t>(below) + (part >= 0.5);
  return InvalidArgument("'nearest_mode' is '", mode, "'");
}

absl::StatusOr<Taps> TapsAt(const ResizeRules& rules, const ResizeAxis& a, double position) {
  if (rules.mode == "nearest") {
    TG_ASSIGN_OR_RETURN(const int64_t at, Nearest(rules.nearest, position));
    return Taps{at, {1}};
  }
  const double support = rules.mode == "linear" ? 1 : 2;
  const double narrow = rules.antialias ? std::min(1.0, a.scale) : 1;
  const double below = std::floor(position);
  const auto before = static_cast<int64_t>(std::floor(-support / narrow)) + 1;
  Taps out{static_cast<int64_t>(below) + before, {}};
  double sum = 0;
  for (int64_t i = before; i < 2 - before; ++i) {
    const double x = (below + static_cast<double>(i) - position) * narrow;
    const double weight = support == 1 ? std::max(0.0, 1 - std::abs(x)) : Cubic(x, rules.cubic);
    out.weights.push_back(weight);
    sum += weight;
  }
  for (double& weight : out.weights) weight /= rules.antialias && sum != 0 ? sum : 1;
  return out;
}

// Without those outside of the axis the others make up for them.
void ExcludeOutside(int64_t in, Taps* taps) {
  double sum = 0;
  for (size_t i = 0; i < taps->weights.size(); ++i) {
    const int64_t at = taps->first + static_cast<int64_t>(i);
    if (at < 0 || at >= in) taps->weights[i] = 0;
    sum += taps->weights[i];
  }
  for (double& weight : taps->weights) weight /= sum == 0 ? 1 : sum;
}

// Whether each element is there several times, one after another: a view, without a table.
bool IsRepeated(const ResizeAxis& a, const std::vector<int64_t>& positions) {
  const int64_t times = a.out / a.in;
  bool repeated = times >= 1 && times * a.in == a.out;
  for (size_t o = 0; repeated && o < positions.size(); ++o) {
    repeated = positions[o] == static_cast<int64_t>(o) / times;
  }
  return repeated;
}

// The axis resampled: a gather of all taps, times weights, summed.
absl::StatusOr<Tensor> ResampleAxis(NodeContext& c, const Tensor& x, const ResizeRules& rules,
                                    const ResizeAxis& a) {
  std::vector<int64_t> positions;
  std::vector<double> weights;
  std::vector<uint8_t> outside(static_cast<size_t>(a.out), 0);
  int64_t taps = 1;
  for (int64_t o = 0; o < a.out; ++o) {
    TG_ASSIGN_OR_RETURN(const double at, SourcePosition(rules, a, static_cast<double>(o)));
    if (!(std::abs(at) < 1e12)) return InvalidArgument("axis ", a.axis, " is read at ", at);
    TG_ASSIGN_OR_RETURN(Taps row, TapsAt(rules, a, at));
    if (rules.exclude_outside) ExcludeOutside(a.in, &row);
    taps = static_cast<int64_t>(row.weights.size());
    if (taps * a.out > kMaxTaps) return ResourceExhausted("axis ", a.axis, " has too many taps");
    for (int64_t i = 0; i < taps; ++i) {
      positions.push_back(std::clamp<int64_t>(row.first + i, 0, a.in - 1));
    }
    weights.insert(weights.end(), row.weights.begin(), row.weights.end());
    outside[o] =
        rules.coordinates == "tf_crop_and_resize" && (at < 0 || at > static_cast<double>(a.in - 1));
  }
  const bool nearest = rules.mode == "nearest";
  const bool inside = std::ranges::find(outside, 1) == outside.end();
  if (nearest && inside && IsRepeated(a, positions)) {
    return x.RepeatInterleave(a.out / a.in, a.axis);
  }
  const Shape table = nearest ? Shape{a.out} : Shape{a.out, taps};
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Weight(HostTensor::Of<int64_t>(table, positions)));
  Tensor out = x.IndexSelect(a.axis, index.Reshape(table));
  if (!nearest) {
    TG_ASSIGN_OR_RETURN(Tensor factor, c.Weight(HostTensor::Of<double>(table, weights)));
    Shape shape(static_cast<size_t>(x.rank() + 1), 1);
    shape[a.axis] = a.out;
    shape[a.axis + 1] = taps;
    factor = factor.Reshape(shape).Cast(out.dtype());
    out = (out * factor).Sum({a.axis + 1});
  }
  if (inside) return out;
  HostTensor mask{DType::kBool, {a.out}, std::string(outside.begin(), outside.end())};
  TG_ASSIGN_OR_RETURN(const Tensor hidden, c.Weight(std::move(mask)));
  return AlongAxis(hidden, a.axis, x.rank()).Where(out.Like(rules.extrapolation), out);
}

absl::StatusOr<Tensor> Resample(NodeContext& c, const Tensor& x, const ResizeRules& rules,
                                const std::vector<ResizeAxis>& axes) {
  if (rules.mode != "nearest" && rules.mode != "linear" && rules.mode != "cubic") {
    return InvalidArgument("'mode' is '", rules.mode, "', expected nearest, linear or cubic");
  }
  // Rounded once, at the end; integers are rounded to nearest and kept within their type.
  const bool gathers = rules.mode == "nearest" && rules.coordinates != "tf_crop_and_resize";
  Tensor out = gathers ? x : x.Cast(ComposedType(x.dtype()));
  for (const ResizeAxis& a : axes) {
    if (a.in < 1 || a.out < 0) {
      return InvalidArgument("axis ", a.axis, " of ", a.in, " elements resized to ", a.out);
    }
    if (a.IsKept()) continue;
    if (!a.size.is_static()) {
      return Unimplemented("axis ", a.axis, " has a size that each run decides and is resized");
    }
    TG_ASSIGN_OR_RETURN(out, ResampleAxis(c, out, rules, a));
  }
  return out.Cast(x.dtype());
}

// A list of floats that must be known at import; empty if the input is left out.
absl::StatusOr<std::vector<double>> KnownFloats(NodeContext& c, int i) {
  if (!c.HasInput(i)) return std::vector<double>();
  TG_ASSIGN_OR_RETURN(const HostTensor* known, c.Content(i));
  return known->AsDoubles();
}

// floor(size * scale), in f32 as the type of scales is: 5 times 2.6 is 13.
int64_t ScaledSize(int64_t size, double scale) {
  return static_cast<int64_t>(std::floor(static_cast<float>(size) * static_cast<float>(scale)));
}

absl::Status CheckScales(const std::vector<double>& scales, size_t axes) {
  if (scales.size() != axes) {
    return InvalidArgument(scales.size(), " scales for ", axes, " axes");
  }
  for (const double scale : scales) {
    if (!(scale > 0 && scale < 1e9)) return InvalidArgument("a scale is ", scale);
  }
  return absl::OkStatus();
}

// Sizes and scales of the axes from the inputs `scales` and `sizes`, one of which is there.
absl::Status ReadSizes(NodeContext& c, int scales_input, std::vector<ResizeAxis>* axes) {
  TG_ASSIGN_OR_RETURN(const std::vector<double> scales, KnownFloats(c, scales_input));
  TG_ASSIGN_OR_RETURN(const std::string_view policy,
                      c.String("keep_aspect_ratio_policy", "stretch"));
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller") {
    return InvalidArgument("'keep_aspect_ratio_policy' is '", policy, "'");
  }
  if (!scales.empty()) {
    TG_RETURN_IF_ERROR(CheckScales(scales, axes->size()));
    for (size_t i = 0; i < axes->size(); ++i) {
      ResizeAxis& a = (*axes)[i];
      a.scale = scales[i];
      a.out = ScaledSize(a.in, a.scale);
    }
    return absl::OkStatus();
  }
  if (!c.HasInput(scales_input + 1)) return InvalidArgument("has neither scales nor sizes");
  TG_ASSIGN_OR_RETURN(const Dims sizes, c.Sizes(scales_input + 1));
  if (sizes.size() != axes->size()) {
    return InvalidArgument(sizes.size(), " sizes for ", axes->size(), " axes");
  }
  double least = INFINITY, most = 0;
  for (size_t i = 0; i < axes->size(); ++i) {
    ResizeAxis& a = (*axes)[i];
    if (a.in < 1) return InvalidArgument("axis ", a.axis, " has no elements");
    const bool fixed = a.size.is_static() && sizes[i].is_static();
    if (!fixed && sizes[i] != a.size) {
      return Unimplemented("axis ", a.axis, " is resized to a size that each run decides");
    }
    if (!fixed && policy != "stretch") {
      return Unimplemented("the aspect ratio of axis ", a.axis, ", whose size each run decides");
    }
    a.out = sizes[i].size();
    a.scale = static_cast<double>(a.out) / static_cast<double>(a.in);
    least = std::min(least, a.scale);
    most = std::max(most, a.scale);
  }
  if (policy == "stretch") return absl::OkStatus();
  for (ResizeAxis& a : *axes) {
    a.scale = policy == "not_larger" ? least : most;
    a.out = static_cast<int64_t>(std::floor(a.scale * static_cast<double>(a.in) + 0.5));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ResizeOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  const bool early = c.opset() < 11;  // X and scales, asymmetric positions rounded down
  ResizeRules rules;
  TG_ASSIGN_OR_RETURN(rules.mode, c.String("mode", "nearest"));
  TG_ASSIGN_OR_RETURN(rules.coordinates, c.String("coordinate_transformation_mode",
                                                  early ? "asymmetric" : "half_pixel"));
  TG_ASSIGN_OR_RETURN(rules.nearest,
                      c.String("nearest_mode", early ? "floor" : "round_prefer_floor"));
  TG_ASSIGN_OR_RETURN(const int64_t antialias, c.Int("antialias", 0));
  TG_ASSIGN_OR_RETURN(const int64_t exclude, c.Int("exclude_outside", 0));
  TG_ASSIGN_OR_RETURN(const float cubic, c.Float("cubic_coeff_a", -0.75f));
  TG_ASSIGN_OR_RETURN(const float extrapolation, c.Float("extrapolation_value", 0));
  rules.antialias = antialias != 0;
  rules.exclude_outside = exclude != 0 && rules.mode != "nearest";
  rules.cubic = cubic;
  rules.extrapolation = extrapolation;
  TG_ASSIGN_OR_RETURN(const Axes given, c.Ints("axes", AllAxes(x.rank())));
  TG_RETURN_IF_ERROR(ResolveAxes("resize", given, x.rank()).status());  // none twice
  Axes numbers;
  for (const int64_t number : given) {
    TG_ASSIGN_OR_RETURN(numbers.emplace_back(), ResolveAxis("resize", number, x.rank()));
  }
  std::vector<ResizeAxis> axes = AxesOf(x, numbers);
  TG_RETURN_IF_ERROR(ReadSizes(c, early ? 1 : 2, &axes));
  if (rules.coordinates == "tf_crop_and_resize") {
    TG_ASSIGN_OR_RETURN(const std::vector<double> roi, KnownFloats(c, 1));
    if (roi.size() != 2 * axes.size()) {
      return InvalidArgument("'roi' has ", roi.size(), " numbers for ", axes.size(), " axes");
    }
    for (size_t i = 0; i < axes.size(); ++i) {
      axes[i].roi_begin = roi[i];
      axes[i].roi_end = roi[axes.size() + i];
    }
  }
  TG_ASSIGN_OR_RETURN(const Tensor out, Resample(c, x, rules, axes));
  return c.Output(out);
}

// The scales are attributes before opset 9: of height and width in opset 1, of all axes in 7.
absl::Status UpsampleOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  std::vector<double> scales;
  if (c.opset() < 7) {
    TG_ASSIGN_OR_RETURN(const float height, c.Float("height_scale", 1));
    TG_ASSIGN_OR_RETURN(const float width, c.Float("width_scale", 1));
    scales = {1, 1, height, width};
  } else if (c.opset() < 9) {
    TG_ASSIGN_OR_RETURN(const std::vector<float> floats, c.Floats("scales", {}));
    scales.assign(floats.begin(), floats.end());
  } else {
    TG_ASSIGN_OR_RETURN(scales, KnownFloats(c, 1));
  }
  TG_RETURN_IF_ERROR(CheckScales(scales, static_cast<size_t>(x.rank())));
  ResizeRules rules{.mode = "nearest", .coordinates = "asymmetric", .nearest = "floor"};
  TG_ASSIGN_OR_RETURN(rules.mode, c.String("mode", "nearest"));
  if (rules.mode == "bilinear") rules.mode = "linear";
  std::vector<ResizeAxis> axes = AxesOf(x, AllAxes(x.rank()));
  for (ResizeAxis& a : axes) {
    a.scale = scales[a.axis];
    a.out = ScaledSize(a.in, a.scale);
  }
  TG_ASSIGN_OR_RETURN(const Tensor out, Resample(c, x, rules, axes));
  return c.Output(out);
}

}  // namespace telegrad::onnx
