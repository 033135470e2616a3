// GridSample, AffineGrid and DeformConv: values at positions that tensors say.
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/onnx/sampling.h"
#include "engine/frontend/ops/windows.h"

namespace telegrad::onnx {
namespace {

// i64 positions of floats that are whole, far ones brought near enough to be counted.
Tensor WholePositions(const Tensor& x, int64_t size) {
  const auto far = static_cast<double>(size + 4);
  return x.Maximum(-far).Minimum(far).Cast(DType::kInt64);
}

Tensor Inside(const Tensor& at, int64_t size) { return at.Ge(0).And(at.Lt(size)); }

struct GridRules {
  std::string_view mode, padding;
  bool align = false;
};

// Mirrored at both borders as often as it takes.
Tensor Reflected(const Tensor& x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return x * 0.0;
  const Tensor t = (x - low).FloorMod(2 * range);
  return t.Gt(range).Where(2 * range - t, t) + low;
}

// Positions outside of the axis as the padding mode has them; zeros keep theirs.
Tensor PlaceOnAxis(const Tensor& x, int64_t size, const GridRules& rules) {
  const double low = rules.align ? 0 : -0.5;
  const double high = static_cast<double>(size) - (rules.align ? 1 : 0.5);
  const Tensor outside = x.Lt(low).Or(x.Gt(high));
  if (rules.padding == "border") {
    return outside.Where(x.Maximum(0).Minimum(static_cast<double>(size - 1)), x);
  }
  if (rules.padding == "reflection") return outside.Where(Reflected(x, low, high), x);
  return x;
}

// The element `at`, as the padding mode has it where there is none.
SampleTap TapOf(const Tensor& at, const Tensor& weight, int64_t size, const GridRules& rules) {
  if (rules.padding == "zeros") {
    const Tensor whole = WholePositions(at, size);
    return {whole, weight, Inside(whole, size)};
  }
  const Tensor placed = PlaceOnAxis(at, size, rules);
  return {WholePositions(placed, size).Maximum(0).Minimum(size - 1), weight, {}};
}

// Keys' kernel with a = -0.75 for the elements from -1 to 2 around, `part` behind the one before.
std::vector<Tensor> CubicWeights(const Tensor& part) {
  constexpr double a = -0.75;
  const auto outer = [&](const Tensor& x) { return ((x - 5.0) * x + 8.0) * x * a - 4 * a; };
  const auto inner = [&](const Tensor& x) { return (x * (a + 2) - (a + 3)) * x * x + 1.0; };
  return {outer(part + 1.0), inner(part), inner(1.0 - part), outer(2.0 - part)};
}

absl::StatusOr<std::vector<SampleTap>> GridTaps(const Tensor& given, int64_t size,
                                                const GridRules& rules) {
  const Tensor x = PlaceOnAxis(rules.mode == "nearest" ? given.Round() : given, size, rules);
  if (rules.mode == "nearest") return std::vector<SampleTap>{TapOf(x, {}, size, rules)};
  const Tensor below = x.Floor(), part = x - below;
  std::vector<SampleTap> out;
  if (rules.mode == "linear" || rules.mode == "bilinear") {
    out = {TapOf(below, 1.0 - part, size, rules), TapOf(below + 1.0, part, size, rules)};
    return out;
  }
  if (rules.mode != "cubic" && rules.mode != "bicubic") {
    return InvalidArgument("'mode' is '", rules.mode, "', expected linear, nearest or cubic");
  }
  double step = -1;
  for (const Tensor& weight : CubicWeights(part)) {
    out.push_back(TapOf(below + step, weight, size, rules));
    step += 1;
  }
  return out;
}

// Evenly spaced from -1 to 1: the middles of `n` parts, or with `align` the ends too.
Tensor EvenlySpaced(Builder& b, int64_t n, bool align) {
  const Tensor i = b.Iota(DType::kInt64, n).Cast(DType::kFloat64);
  const auto count = static_cast<double>(n);
  if (!align) return (i * 2.0 + 1.0) / count - 1.0;
  return n > 1 ? i * (2 / (count - 1)) - 1.0 : i - 1.0;
}

}  // namespace

Tensor SampleTaps(const Tensor& x, const std::vector<std::vector<SampleTap>>& axes) {
  const int64_t batch = x.dim(0), channels = x.dim(1);
  const int64_t plane = NumElements(x.shape().subspan(2));
  const Tensor rows = x.Reshape({batch, channels, plane}).Permute({0, 2, 1});
  Tensor sum;
  std::vector<size_t> choice(axes.size(), 0);
  while (true) {
    Tensor at, weight, inside;
    for (size_t i = 0; i < axes.size(); ++i) {
      const SampleTap& tap = axes[i][choice[i]];
      at = at.valid() ? at * x.dim(static_cast<int64_t>(i) + 2) + tap.at : tap.at;
      if (tap.weight.valid()) weight = weight.valid() ? weight * tap.weight : tap.weight;
      if (tap.inside.valid()) inside = inside.valid() ? inside.And(tap.inside) : tap.inside;
    }
    Tensor value = rows.GatherNd(at.Unsqueeze(-1), 1);
    if (weight.valid()) value = value * weight.Unsqueeze(-1);
    if (inside.valid()) value = inside.Unsqueeze(-1).Where(value, value.ZerosLike());
    sum = sum.valid() ? sum + value : value;
    size_t i = axes.size();
    while (i > 0 && ++choice[i - 1] == axes[i - 1].size()) choice[--i] = 0;
    if (i == 0) return sum.Permute({0, 2, 1});
  }
}

std::vector<SampleTap> LinearTaps(const Tensor& position, int64_t size) {
  const Tensor below = position.Floor(), part = position - below;
  const Tensor first = WholePositions(below, size), second = first + 1;
  return {{first, 1.0 - part, Inside(first, size)}, {second, part, Inside(second, size)}};
}

// The grid's last axis names positions from -1 to 1, the last spatial axis first.
absl::Status GridSampleOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor grid, c.FloatInput(1));
  GridRules rules;
  TG_ASSIGN_OR_RETURN(rules.mode, c.String("mode", c.opset() < 20 ? "bilinear" : "linear"));
  TG_ASSIGN_OR_RETURN(rules.padding, c.String("padding_mode", "zeros"));
  TG_ASSIGN_OR_RETURN(const int64_t align, c.Int("align_corners", 0));
  rules.align = align != 0;
  if (rules.padding != "zeros" && rules.padding != "border" && rules.padding != "reflection") {
    return InvalidArgument("'padding_mode' is '", rules.padding,
                           "', expected zeros, border or reflection");
  }
  const int64_t n = x.rank() - 2;
  if (n < 1 || n > 3 || grid.rank() != x.rank() || grid.dim(-1) != n || grid.dim(0) != x.dim(0)) {
    return InvalidArgument("an input of shape ", ToString(x.shape()), " with a grid of shape ",
                           ToString(grid.shape()));
  }
  for (int64_t i = 0; i < n; ++i) {
    if (x.dim(i + 2) < 1) return InvalidArgument("axis ", i + 2, " has no elements");
  }
  const int64_t points = NumElements(grid.shape().subspan(1, static_cast<size_t>(n)));
  const Tensor flat = grid.Cast(ComposedType(grid.dtype())).Reshape({x.dim(0), points, n});
  std::vector<std::vector<SampleTap>> taps;
  for (int64_t i = 0; i < n; ++i) {
    const Tensor at = flat.Slice(-1, n - 1 - i, n - i).Squeeze(-1) + 1.0;
    const auto size = static_cast<double>(x.dim(i + 2));
    const Tensor position = rules.align ? at * ((size - 1) / 2) : (at * size - 1.0) / 2.0;
    TG_ASSIGN_OR_RETURN(auto of_axis, GridTaps(position, x.dim(i + 2), rules));
    taps.push_back(std::move(of_axis));
  }
  Shape shape = {x.dim(0), x.dim(1)};
  shape.insert(shape.end(), grid.shape().begin() + 1, grid.shape().end() - 1);
  const Tensor wide = x.Cast(ComposedType(x.dtype()));
  return c.Output(SampleTaps(wide, taps).Reshape(shape).Cast(x.dtype()));
}

absl::Status AffineGridOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor theta, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Shape size, c.Numbers(1));
  TG_ASSIGN_OR_RETURN(const int64_t align, c.Int("align_corners", 0));
  const auto n = static_cast<int64_t>(size.size()) - 2;
  if ((n != 2 && n != 3) || theta.rank() != 3 || theta.dim(1) != n || theta.dim(2) != n + 1 ||
      theta.dim(0) != size[0]) {
    return InvalidArgument("matrices of shape ", ToString(theta.shape()), " for an image of shape ",
                           ToString(size));
  }
  TG_RETURN_IF_ERROR(CheckedByteSize(DType::kFloat64, size).status());
  const DType wide = ComposedType(theta.dtype());
  // Column k of all matrices, [N, 1, ... n].
  const auto column = [&](int64_t k) {
    Shape shape(static_cast<size_t>(n) + 2, 1);
    shape.front() = size[0];
    shape.back() = n;
    return theta.Cast(wide).Slice(2, k, k + 1).Reshape(shape);
  };
  const auto line = [&](int64_t i) {
    const Tensor along = EvenlySpaced(c.builder(), size[i + 2], align != 0).Cast(wide);
    return AlongAxis(along.Contiguous(), i + 1, n + 2);
  };
  // The last axis is the first coordinate. What it adds, and what the others multiply, is in memory
  // in the order of the result's last two axes, so that these are one loop.
  Tensor out = (column(n) + line(n - 1) * column(0)).Contiguous();
  const Dims last = out.dims();
  for (int64_t i = 0; i + 1 < n; ++i) {
    out = out + line(i) * column(n - 1 - i).Expand(last).Contiguous();
  }
  return c.Output(out.Cast(theta.dtype()));
}

// A convolution whose windows read each of their elements at an offset of its own.
absl::Status DeformConvOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor given, c.FloatInput(0));
  TG_ASSIGN_OR_RETURN(const Tensor weight, c.FloatInput(1));
  TG_ASSIGN_OR_RETURN(const Tensor offset, c.FloatInput(2));
  TG_ASSIGN_OR_RETURN(const int64_t groups, c.Int("group", 1));
  TG_ASSIGN_OR_RETURN(const int64_t parts, c.Int("offset_group", 1));
  TG_ASSIGN_OR_RETURN(const AxisWindows windows, WindowsByAttributes(c, given, weight));
  const DType wide = ComposedType(given.dtype());
  const auto n = static_cast<int64_t>(windows.size());
  const int64_t batch = given.dim(0), channels = given.dim(1), out_channels = weight.dim(0);
  Shape out_shape = {batch, out_channels}, kernel;
  for (const AxisWindow& axis : windows) {
    out_shape.push_back(axis.out);
    kernel.push_back(axis.kernel);
  }
  const int64_t taps = NumElements(kernel);
  const int64_t places = NumElements(ShapeView(out_shape).subspan(2));
  if (groups < 1 || parts < 1 || channels % parts != 0 || out_channels % groups != 0 ||
      weight.dim(1) * groups != channels || offset.rank() != given.rank() ||
      offset.size() != batch * parts * taps * n * places) {
    return InvalidArgument("an input of shape ", ToString(given.shape()), ", a weight of shape ",
                           ToString(weight.shape()), " and offsets of shape ",
                           ToString(offset.shape()), " in ", groups, " and ", parts, " groups");
  }
  // Each group of channels with offsets of its own is an example.
  Shape split = {batch * parts, channels / parts};
  split.insert(split.end(), given.shape().begin() + 2, given.shape().end());
  const Tensor moved = offset.Cast(wide).Reshape({batch * parts, taps, n, places});
  Shape grid = kernel;
  grid.insert(grid.end(), out_shape.begin() + 2, out_shape.end());
  std::vector<std::vector<SampleTap>> samples;
  for (int64_t i = 0; i < n; ++i) {
    const AxisWindow& axis = windows[i];
    Builder& b = c.builder();
    const Tensor tap = AlongAxis(b.Iota(DType::kInt64, axis.kernel), i, 2 * n) * axis.dilation;
    const Tensor place = AlongAxis(b.Iota(DType::kInt64, axis.out), n + i, 2 * n) * axis.stride;
    const Tensor still = (tap + place - axis.before).Expand(grid).Reshape({taps, places});
    const Tensor at = moved.Slice(2, i, i + 1).Squeeze(2) + still.Cast(wide);
    samples.push_back(LinearTaps(at.Reshape({batch * parts, taps * places}), axis.in));
  }
  Tensor columns = SampleTaps(given.Cast(wide).Reshape(split), samples);
  if (c.HasInput(4)) {
    TG_ASSIGN_OR_RETURN(const Tensor mask, c.FloatInput(4));
    columns = columns * mask.Cast(wide).Reshape({batch * parts, 1, taps * places});
  }
  columns = columns.Reshape({batch, groups, channels / groups * taps, places});
  const Tensor matrix =
      weight.Cast(wide).Reshape({groups, out_channels / groups, channels / groups * taps});
  Tensor out = matrix.MatMul(columns).Reshape(out_shape);
  if (c.HasInput(3)) {
    TG_ASSIGN_OR_RETURN(const Tensor bias, c.FloatInput(3));
    out = out + AlongAxis(bias.Cast(wide), 1, out.rank());
  }
  return c.Output(out.Cast(given.dtype()));
}

}  // namespace telegrad::onnx
