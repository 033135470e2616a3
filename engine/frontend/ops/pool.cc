// Pools: reductions over the elements of each window.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/products.h"
#include "engine/frontend/ops/reduce.h"
#include "engine/frontend/ops/windows.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// What is below all others, which padding gets.
double Lowest(DType type) {
  if (IsFloat(type)) return -std::numeric_limits<double>::infinity();
  return IsSigned(type) ? -std::ldexp(1.0, Info(type).bits - 1) : 0.0;
}

absl::StatusOr<AxisWindows> PoolWindows(std::string_view op, const Tensor& x,
                                        const std::vector<int64_t>& kernel, const Window& window) {
  if (!IsFloat(x.dtype()) && !IsInt(x.dtype())) {
    return InvalidArgument(op, ": element type ", Name(x.dtype()), " of ", ToString(x.dims()),
                           " is not a number");
  }
  return ResolveWindows(op, x, kernel, window);
}

// How many elements each window has, [out..]: those of the axis, and with `count_pads` of the
// padding, but not what ceil_mode adds behind it. A product of the counts along each axis.
Tensor Counts(Builder* builder, DType type, const AxisWindows& axes, bool count_pads) {
  Tensor out = builder->Const(type, 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    AxisWindow a = axes[i];
    if (count_pads)
      a = {a.in + a.before + a.after, 0, 0, a.kernel, a.stride, a.dilation, a.out, a.cut};
    Dims column(axes.size(), Dim(1));
    column[i] = a.out;
    const Tensor ones = builder->Full(type, {a.in}, 1);
    out = out * MakeWindows(ones, {a}).Sum({-1}).Reshape(column);
  }
  return out;
}

// Whether a maximum along each axis in turn, whose results are stored in between, compares few
// elements enough: 26 instead of 169 of a window of 13 x 13 at each place, not 6 instead of 9.
bool PaysAxisByAxis(const AxisWindows& axes) {
  constexpr double kLeastSaved = 2;
  double together = 1, apart = 0;
  for (const AxisWindow& a : axes) {
    if (a.kernel == 1) continue;
    together *= static_cast<double>(a.kernel);
    apart += static_cast<double>(a.kernel);
  }
  const bool overlap =
      std::ranges::any_of(axes, [](const AxisWindow& a) { return a.kernel > a.stride; });
  return overlap && together >= kLeastSaved * apart;
}

// Whether windows of one axis are long, one begins at each element, and there are so many that
// comparisons of all elements are fewer.
bool PaysByDoubling(const AxisWindow& a) {
  constexpr int64_t kLong = 8;
  const int64_t steps = std::bit_width(static_cast<uint64_t>(a.kernel - 1));
  return a.kernel >= kLong && a.stride == 1 && a.dilation == 1 && a.cut == 0 &&
         steps * a.padded() < a.kernel * a.out;
}

// The largest elements of such windows: of 2, 4, 8, ... elements each, then of two of the longest
// ones that overlap. So 13 elements take 4 comparisons.
Tensor LargestByDoubling(const Tensor& x, int64_t axis, const AxisWindow& a, double lowest) {
  std::vector<int64_t> pairs(static_cast<size_t>(2 * x.rank()), 0);
  pairs[static_cast<size_t>(2 * axis)] = a.before;
  pairs[static_cast<size_t>(2 * axis + 1)] = a.after;
  Tensor largest = x.Pad(pairs, lowest);
  for (int64_t have = 1, step = 1; have < a.kernel; have += step) {
    step = std::min(have, a.kernel - have);
    const int64_t n = largest.dim(axis);
    largest = largest.Slice(axis, 0, n - step).Maximum(largest.Slice(axis, step, n)).Contiguous();
  }
  return largest;
}

}  // namespace

Tensor Tensor::MaxPool(const std::vector<int64_t>& kernel, const Window& window) const {
  if (!valid()) return *this;
  const absl::StatusOr<AxisWindows> axes = PoolWindows("max_pool", *this, kernel, window);
  if (!axes.ok()) return builder_->Fail(axes.status());
  // Of 8 bits, some have no infinity.
  const DType type = IsFloat(dtype()) && ByteSize(dtype()) == 1 ? DType::kFloat32 : dtype();
  const auto largest = [&](const Tensor& x, const AxisWindows& of) {
    return MakeWindows(x, of, Lowest(type)).Max(LastAxes(of.size()));
  };
  if (!PaysAxisByAxis(*axes)) return largest(Cast(type), *axes).Cast(dtype());
  AxisWindows one;  // of one element along all axes
  for (const AxisWindow& a : *axes) one.push_back({a.in, 0, 0, 1, 1, 0, a.in, 0});
  Tensor x = Cast(type);
  for (size_t i = axes->size(); i-- > 0;) {
    one[i] = (*axes)[i];
    const int64_t axis = x.rank() - static_cast<int64_t>(axes->size() - i);
    x = PaysByDoubling(one[i]) ? LargestByDoubling(x, axis, one[i], Lowest(type)) : largest(x, one);
    one[i] = {one[i].out, 0, 0, 1, 1, 0, one[i].out, 0};
  }
  return x.Cast(dtype());
}

// Among the positions of the maximum the first one is farthest from the end; padding, whose element
// may equal the maximum as well, is no distance away.
std::pair<Tensor, Tensor> Tensor::MaxPoolIndices(const std::vector<int64_t>& kernel,
                                                 const Window& window) const {
  if (!valid()) return {*this, *this};
  const absl::StatusOr<AxisWindows> axes = PoolWindows("max_pool", *this, kernel, window);
  if (!axes.ok()) return {builder_->Fail(axes.status()), Tensor()};
  const size_t n = axes->size();
  const Shape plane = ToShape(shape().last(n));
  const int64_t size = NumElements(plane);
  if (size > std::numeric_limits<int32_t>::max()) {
    const Tensor failed = builder_->Fail(
        InvalidArgument("max_pool: the positions of ", ToString(plane), " do not fit into i32"));
    return {failed, failed};
  }
  const DType type = IsFloat(dtype()) && ByteSize(dtype()) == 1 ? DType::kFloat32 : dtype();
  const Tensor windows = MakeWindows(Cast(type), *axes, Lowest(type));
  const Tensor largest = windows.Max(LastAxes(n), true);
  Tensor hit = windows.Eq(largest);
  if (IsFloat(dtype())) hit = hit.Or(windows.Ne(windows));
  const Tensor from_end = static_cast<int32_t>(size) - builder_->Iota(DType::kInt32, size);
  const Tensor distances = MakeWindows(from_end.Reshape(plane), *axes);
  const Tensor farthest = hit.Where(distances, 0).Max(LastAxes(n));
  return {windows.Max(LastAxes(n)).Cast(dtype()), static_cast<int32_t>(size) - farthest};
}

// Positions outside of the plane are written nowhere; where one repeats, the last element stays.
Tensor Tensor::MaxUnpool(const Tensor& indices, const Shape& spatial) const {
  if (!valid()) return *this;
  const auto n = static_cast<int64_t>(spatial.size());
  if (!indices.valid() || !IsInt(indices.dtype()) || indices.dims() != dims() || n == 0 ||
      n > rank()) {
    return builder_->Fail(
        InvalidArgument("max_unpool: ", ToString(dims()), " with indices ", Name(indices.dtype()),
                        " ", ToString(indices.dims()), " to ", ToString(spatial),
                        ", expected integers of the same shape and at most as many sizes as axes"));
  }
  if (!dims().is_static()) {
    return builder_->Fail(
        InvalidArgument("max_unpool: ", ToString(dims()), " has a symbolic size"));
  }
  Shape out = ToShape(shape().first(static_cast<size_t>(rank() - n)));
  const int64_t planes = NumElements(out), plane = NumElements(spatial);
  out.insert(out.end(), spatial.begin(), spatial.end());
  const Tensor position = indices.Cast(DType::kInt64).Reshape({planes, planes == 0 ? 0 : -1});
  const Tensor inside = position.Ge(0).And(position.Lt(plane));
  const Tensor begin = (builder_->Iota(DType::kInt64, planes) * plane).Unsqueeze(-1);
  const Tensor row = inside.Where(position + begin, -1).Flatten();
  return builder_->Zeros({planes * plane}, dtype())
      .Scatter(row, Reshape({size()}), ScatterKind::kSet)
      .Reshape(out);
}

Tensor Tensor::AvgPool(const std::vector<int64_t>& kernel, const Window& window,
                       bool count_pads) const {
  if (!valid()) return *this;
  const absl::StatusOr<AxisWindows> axes = PoolWindows("avg_pool", *this, kernel, window);
  if (!axes.ok()) return builder_->Fail(axes.status());
  const DType type = FloatType(dtype());
  const Tensor windows = MakeWindows(Cast(type), *axes);
  const Axes last = LastAxes(axes->size());
  const bool whole = std::ranges::all_of(*axes, [&](const AxisWindow& a) {
    return a.cut == 0 && (count_pads || (a.before == 0 && a.after == 0));
  });
  if (whole) return windows.Mean(last);
  return windows.Sum(last) / Counts(builder_, type, *axes, count_pads);
}

Tensor Tensor::LpPool(const std::vector<int64_t>& kernel, const Window& window, double p) const {
  if (!valid()) return *this;
  const absl::StatusOr<AxisWindows> axes = PoolWindows("lp_pool", *this, kernel, window);
  if (!axes.ok()) return builder_->Fail(axes.status());
  if (!(p > 0)) return builder_->Fail(InvalidArgument("lp_pool: p is ", p, ", expected above 0"));
  const DType type = FloatType(dtype()), wide = FactorType(type);
  const Tensor x = Cast(wide);
  const Axes last = LastAxes(axes->size());
  if (std::isinf(p)) return MakeWindows(x.Abs(), *axes).Max(last).Cast(type);
  const Tensor powers = p == 1 ? x.Abs() : p == 2 ? x * x : x.Abs().Pow(p);
  const Tensor sum = MakeWindows(powers, *axes).Sum(last);
  return (p == 1 ? sum : SafeRoot(sum, p)).Cast(type);
}

}  // namespace telegrad
