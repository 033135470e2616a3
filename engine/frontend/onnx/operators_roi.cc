// Pools over regions of interest.
#include <cmath>
#include <limits>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxSamples = 64;  // of one bin along one axis

// What RoiAlign does along one axis: positions of samples and how many of them count.
struct RoiAxis {
  Tensor position;  // [rois, bins * samples]
  Tensor counts;    // [rois, 1, samples] bool: the sample is one of the region's, or invalid: all
  Tensor number;    // [rois] of samples for each bin
};

struct RoiRules {
  int64_t bins, size, samples;  // samples 0: as many as the region has elements for each bin
  double scale;
  bool half_pixel;
};

RoiAxis PlaceRegion(Builder& b, const Tensor& begin, const Tensor& end, const RoiRules& rules) {
  const double shift = rules.half_pixel ? 0.5 : 0;
  const Tensor first = begin * rules.scale - shift, last = end * rules.scale - shift;
  Tensor extent = last - first;
  if (!rules.half_pixel) extent = extent.Maximum(1);
  const Tensor bin = extent / static_cast<double>(rules.bins);
  // A region that leaves the image has more samples than this only where they would be alike.
  const int64_t most = rules.samples > 0
                           ? rules.samples
                           : std::min(kMaxSamples, CeilDiv(rules.size, rules.bins) + 1);
  RoiAxis out;
  out.number = rules.samples > 0 ? bin.ZerosLike() + static_cast<double>(rules.samples)
                                 : bin.Floor()
                                       .Lt(bin)
                                       .Where(bin.Floor() + 1.0, bin.Floor())
                                       .Maximum(0)
                                       .Minimum(static_cast<double>(most));
  const DType type = bin.dtype();
  const Tensor i = b.Iota(DType::kInt64, most).Cast(type).Reshape({1, 1, most});
  const Tensor k = b.Iota(DType::kInt64, rules.bins).Cast(type).Reshape({1, rules.bins, 1});
  const Dim regions = bin.dims()[0];
  const auto column = [&](const Tensor& t) { return t.Reshape(Dims{regions, 1, 1}); };
  const Tensor step = column(bin / out.number.Maximum(1));
  const Tensor at = column(first) + k * column(bin) + (i + 0.5) * step;
  out.position = at.Reshape(Dims{regions, rules.bins * most});
  if (rules.samples == 0) out.counts = i.Lt(column(out.number));
  return out;
}

// Two neighbours of each position and their weights; none of a position beyond the image.
struct RoiTaps {
  Tensor low, high, low_weight, high_weight;
};

RoiTaps RoiTapsOf(const Tensor& position, int64_t size) {
  const auto last = static_cast<double>(size - 1);
  const Tensor outside = position.Lt(-1.0).Or(position.Gt(static_cast<double>(size)));
  const Tensor at = position.Maximum(0).Minimum(last);
  const Tensor below = at.Floor();
  const Tensor part = outside.Where(0.0, at - below);
  return {below.Cast(DType::kInt64), (below + 1.0).Minimum(last).Cast(DType::kInt64),
          outside.Where(0.0, 1.0 - part), part};
}

}  // namespace

// Samples of each bin of each region, interpolated from four elements each: their mean, or the
// largest of the weighted elements.
absl::Status RoiAlignOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor given, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Tensor batch, c.Input(2));
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("mode", "avg"));
  TG_ASSIGN_OR_RETURN(const std::string_view coordinates,
                      c.String("coordinate_transformation_mode",
                               c.opset() < 16 ? "output_half_pixel" : "half_pixel"));
  TG_ASSIGN_OR_RETURN(const int64_t height, c.Int("output_height", 1));
  TG_ASSIGN_OR_RETURN(const int64_t width, c.Int("output_width", 1));
  TG_ASSIGN_OR_RETURN(const int64_t samples, c.Int("sampling_ratio", 0));
  TG_ASSIGN_OR_RETURN(const float scale, c.Float("spatial_scale", 1));
  if (mode != "avg" && mode != "max") return InvalidArgument("'mode' is '", mode, "'");
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel") {
    return InvalidArgument("'coordinate_transformation_mode' is '", coordinates, "'");
  }
  if (x.rank() != 4 || given.rank() != 2 || given.dim(1) != 4 || batch.size() != given.dim(0) ||
      height < 1 || width < 1 || height > kMaxWindowNumber || width > kMaxWindowNumber ||
      samples < 0 || samples > kMaxSamples || x.dim(2) < 1 || x.dim(3) < 1) {
    return InvalidArgument("regions of shape ", ToString(given.shape()), " in ", height, " x ",
                           width, " bins of ", samples, " samples of an input of shape ",
                           ToString(x.shape()));
  }
  const DType wide = ComposedType(x.dtype());
  const Tensor rois = given.Cast(wide);
  const Dim regions = rois.dims()[0];
  const int64_t channels = x.dim(1), h = x.dim(2), w = x.dim(3);
  const auto corner = [&](int64_t i) { return rois.Slice(1, i, i + 1).Squeeze(1); };
  const bool half = coordinates == "half_pixel";
  const RoiAxis down =
      PlaceRegion(c.builder(), corner(1), corner(3), {height, h, samples, scale, half});
  const RoiAxis across =
      PlaceRegion(c.builder(), corner(0), corner(2), {width, w, samples, scale, half});
  const RoiTaps ys = RoiTapsOf(down.position, h), xs = RoiTapsOf(across.position, w);
  // The channels last, in memory too: all of them are read and computed at once, where elements of
  // one channel would be gathered.
  const Tensor rows =
      x.Cast(wide).Permute({0, 2, 3, 1}).Reshape({x.dim(0) * h * w, channels}).Contiguous();
  const Tensor image = batch.Cast(DType::kInt64).Reshape(Dims{regions, 1, 1}) * (h * w);
  const auto tap = [&](const Tensor& y, const Tensor& z, const Tensor& wy, const Tensor& wz) {
    const Tensor at = image + y.Unsqueeze(2) * w + z.Unsqueeze(1);
    return rows.Gather(at) * (wy.Unsqueeze(2) * wz.Unsqueeze(1)).Unsqueeze(3);
  };
  const Tensor parts[] = {tap(ys.low, xs.low, ys.low_weight, xs.low_weight),
                          tap(ys.low, xs.high, ys.low_weight, xs.high_weight),
                          tap(ys.high, xs.low, ys.high_weight, xs.low_weight),
                          tap(ys.high, xs.high, ys.high_weight, xs.high_weight)};
  const int64_t n = down.position.dim(1) / height, m = across.position.dim(1) / width;
  const auto in_bins = [&](const Tensor& t) {
    return t.Reshape(Dims{regions, height, n, width, m, channels});
  };
  Tensor counted;
  if (down.counts.valid()) {
    counted = down.counts.Reshape(Dims{regions, 1, n, 1, 1, 1})
                  .And(across.counts.Reshape(Dims{regions, 1, 1, 1, m, 1}));
  }
  Tensor out;
  if (mode == "avg") {
    Tensor sum = in_bins(parts[0] + parts[1] + parts[2] + parts[3]);
    if (counted.valid()) sum = counted.Where(sum, 0.0);
    const Tensor number = (down.number * across.number).Maximum(1);
    out = sum.Sum({2, 4}) / number.Reshape(Dims{regions, 1, 1, 1});
  } else {
    constexpr double kLowest = -std::numeric_limits<double>::infinity();
    Tensor largest = in_bins(parts[0].Maximum(parts[1]).Maximum(parts[2]).Maximum(parts[3]));
    if (counted.valid()) largest = counted.Where(largest, kLowest);
    out = largest.Max({2, 4});
    if (counted.valid()) out = out.Eq(kLowest).Where(0.0, out);
  }
  return c.Output(out.Contiguous().Permute({0, 3, 1, 2}).Cast(x.dtype()));
}

// The largest element of each bin, whose corners are rounded to elements; 0 of an empty bin.
absl::Status MaxRoiPoolOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor rois, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Attribute* pooled, c.Required("pooled_shape", AttributeType::kInts));
  TG_ASSIGN_OR_RETURN(const float scale, c.Float("spatial_scale", 1));
  if (x.rank() != 4 || rois.rank() != 2 || rois.dim(1) != 5 || pooled->ints.size() != 2 ||
      pooled->ints[0] < 1 || pooled->ints[1] < 1) {
    return InvalidArgument("regions of shape ", ToString(rois.shape()), " in bins ",
                           ToString(pooled->ints), " of an input of shape ", ToString(x.shape()));
  }
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  const int64_t regions = rois.dim(0);
  // bool [regions, bins, size]: the element is in the bin.
  const auto members = [&](int64_t begin, int64_t end, int64_t bins, int64_t size) {
    // Halves are rounded up, as C's round does with numbers that are not negative.
    const auto corner = [&](int64_t i) {
      return (rois.Slice(1, i, i + 1).Squeeze(1).Cast(DType::kFloat64) * scale + 0.5)
          .Floor()
          .Reshape({regions, 1, 1});
    };
    const Tensor first = corner(begin);
    const Tensor bin = (corner(end) - first + 1.0).Maximum(1) / static_cast<double>(bins);
    const Tensor k = c.builder().Iota(DType::kInt64, bins).Cast(DType::kFloat64).Unsqueeze(1);
    const Tensor at = c.builder().Iota(DType::kInt64, size).Cast(DType::kFloat64) - first;
    return at.Ge((k * bin).Floor()).And(at.Lt(((k + 1.0) * bin).Ceil()));
  };
  const int64_t h = x.dim(2), w = x.dim(3);
  const Tensor down = members(2, 4, pooled->ints[0], h), across = members(1, 3, pooled->ints[1], w);
  const Tensor image = rois.Slice(1, 0, 1).Squeeze(1).Cast(DType::kInt64);
  const Tensor wide = x.Cast(ComposedType(x.dtype())).Gather(image);  // [regions, C, H, W]
  const Tensor of_rows =
      across.Unsqueeze(1).Unsqueeze(2).Where(wide.Unsqueeze(3), kLowest).Max({-1});
  // [regions, C, H, PW] -> [regions, C, PH, PW]
  const Tensor chosen =
      down.Unsqueeze(1).Unsqueeze(-1).Where(of_rows.Unsqueeze(2), kLowest).Max({3});
  return c.Output(chosen.Eq(kLowest).Where(0.0, chosen).Cast(x.dtype()));
}

}  // namespace telegrad::onnx
