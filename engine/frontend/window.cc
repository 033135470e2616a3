// Matrix products, convolutions and pools: a broadcast product, summed.
//
// Windows makes overlapping windows out of movement operations alone. An axis of size i is repeated
// until k rows of length i + d fit into it. Row k then starts d elements later in the axis than row
// k - 1, so element (k, p) is x[(k (i + d) + p) mod i] = x[k d + p], and keeping every s-th of the
// first o s elements of each row leaves x[k d + o s]. As index arithmetic the modulo vanishes,
// because k d + o s < i.
#include <algorithm>
#include <limits>
#include <numeric>

#include "engine/base/status.h"
#include "engine/frontend/builder.h"
#include "engine/frontend/shapes.h"

namespace telegrad {
namespace {

// Bounds window numbers and sizes so that no product below overflows.
constexpr int64_t kMaxWindow = int64_t{1} << 20;
constexpr int64_t kMaxSize = int64_t{1} << 40;

struct AxisWindow {
  int64_t in, kernel, stride, dilation, out;
};

absl::StatusOr<std::vector<int64_t>> OnePerAxis(std::string_view what,
                                                const std::vector<int64_t>& list, size_t n,
                                                int64_t low) {
  std::vector<int64_t> out = list.size() == 1 ? std::vector<int64_t>(n, list[0]) : list;
  if (out.size() != n) {
    return InvalidArgument("windows: ", out.size(), " numbers of ", what, " for ", n, " axes");
  }
  for (int64_t v : out) {
    if (v < low || v > kMaxWindow) {
      return InvalidArgument("windows: ", what, " ", v, " is outside of [", low, ", ", kMaxWindow,
                             "]");
    }
  }
  return out;
}

absl::StatusOr<std::vector<AxisWindow>> Geometry(ShapeView spatial,
                                                 const std::vector<int64_t>& kernel,
                                                 const Window& window) {
  const size_t n = spatial.size();
  TG_ASSIGN_OR_RETURN(const auto kernels, OnePerAxis("kernel", kernel, n, 1));
  TG_ASSIGN_OR_RETURN(const auto strides, OnePerAxis("stride", window.stride, n, 1));
  TG_ASSIGN_OR_RETURN(const auto dilations, OnePerAxis("dilation", window.dilation, n, 1));
  std::vector<AxisWindow> out(n);
  for (size_t i = 0; i < n; ++i) {
    // One element is the same under every dilation; 0 makes its row exactly the axis.
    const int64_t dilation = kernels[i] == 1 ? 0 : dilations[i];
    const int64_t extent = dilation * (kernels[i] - 1) + 1;
    if (spatial[i] < extent) {
      return InvalidArgument("windows: spatial axis ", i, " of ", ToString(spatial),
                             " (padded) is smaller than the window of ", extent);
    }
    if (spatial[i] > kMaxSize) {
      return InvalidArgument("windows: spatial axis ", i, " of ", ToString(spatial),
                             " (padded) is over the limit of ", kMaxSize);
    }
    out[i] = {spatial[i], kernels[i], strides[i], dilation, (spatial[i] - extent) / strides[i] + 1};
  }
  return out;
}

// `lead` unchanged, then `per_axis` dims for each window axis.
template <typename F>
Shape Dims(ShapeView lead, const std::vector<AxisWindow>& axes, F per_axis) {
  Shape out = ToShape(lead);
  for (const AxisWindow& a : axes) {
    for (int64_t dim : per_axis(a)) out.push_back(dim);
  }
  return out;
}

Tensor ShrinkTo(const Tensor& x, const Shape& sizes) {
  std::vector<int64_t> pairs;
  for (int64_t size : sizes) pairs.insert(pairs.end(), {0, size});
  return x.Shrink(pairs);
}

using List = std::vector<int64_t>;

// [.., i, ..] -> [.., k, o, ..]
Tensor Overlapping(const Tensor& x, ShapeView lead, const std::vector<AxisWindow>& axes) {
  // A row must hold o s elements; f repeats of the axis make it long enough.
  const auto row = [](const AxisWindow& a) {
    const int64_t f = CeilDiv(std::max(a.in, a.out * a.stride - a.dilation), a.in);
    return a.in * f + a.dilation;
  };
  const auto repeats = [&](const AxisWindow& a) { return CeilDiv(a.kernel * row(a), a.in); };
  Tensor t = x.Reshape(Dims(lead, axes, [](const AxisWindow& a) { return List{1, a.in}; }));
  t = t.Expand(Dims(lead, axes, [&](const AxisWindow& a) { return List{repeats(a), a.in}; }));
  t = t.Reshape(Dims(lead, axes, [&](const AxisWindow& a) { return List{repeats(a) * a.in}; }));
  t = ShrinkTo(t, Dims(lead, axes, [&](const AxisWindow& a) { return List{a.kernel * row(a)}; }));
  t = t.Reshape(Dims(lead, axes, [&](const AxisWindow& a) { return List{a.kernel, row(a)}; }));
  t = ShrinkTo(
      t, Dims(lead, axes, [](const AxisWindow& a) { return List{a.kernel, a.out * a.stride}; }));
  t = t.Reshape(
      Dims(lead, axes, [](const AxisWindow& a) { return List{a.kernel, a.out, a.stride}; }));
  t = ShrinkTo(t, Dims(lead, axes, [](const AxisWindow& a) { return List{a.kernel, a.out, 1}; }));
  return t.Reshape(Dims(lead, axes, [](const AxisWindow& a) { return List{a.kernel, a.out}; }));
}

// Windows that do not overlap are the rows of a reshape. [.., i, ..] -> [.., o, k, ..]
Tensor Disjoint(const Tensor& x, ShapeView lead, const std::vector<AxisWindow>& axes) {
  std::vector<int64_t> pads(2 * lead.size(), 0);
  Tensor t = ShrinkTo(x, Dims(lead, axes, [](const AxisWindow& a) {
                        return List{std::min(a.in, a.out * a.stride)};
                      }));
  // A last window may end before its stride does; what is added here is cut off again below.
  for (const AxisWindow& a : axes) {
    pads.insert(pads.end(), {0, std::max<int64_t>(0, a.out * a.stride - a.in)});
  }
  t = t.Pad(pads);
  t = t.Reshape(Dims(lead, axes, [](const AxisWindow& a) { return List{a.out, a.stride}; }));
  return ShrinkTo(t, Dims(lead, axes, [](const AxisWindow& a) { return List{a.out, a.kernel}; }));
}

// The padding of all axes of `x` from that of the last `n`.
absl::StatusOr<std::vector<int64_t>> PadPairs(const Tensor& x, size_t n, const Window& window) {
  std::vector<int64_t> spatial = window.pads.empty() ? std::vector<int64_t>{0} : window.pads;
  TG_ASSIGN_OR_RETURN(spatial, OnePerAxis("pads", spatial, 2 * n, 0));
  std::vector<int64_t> out(2 * (x.rank() - n), 0);
  out.insert(out.end(), spatial.begin(), spatial.end());
  return out;
}

absl::Status CheckSpatial(std::string_view op, const Tensor& x, size_t n) {
  if (n == 0 || x.rank() < static_cast<int64_t>(n)) {
    return InvalidArgument(op, ": ", ToString(x.shape()), " does not have ", n, " spatial axes");
  }
  return absl::OkStatus();
}

Axes LastAxes(size_t n) {
  Axes out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<int64_t>(i) - static_cast<int64_t>(n);
  return out;
}

// The windows of `x`, padded with `fill`.
Tensor PaddedWindows(const Tensor& x, const std::vector<int64_t>& kernel, const Window& window,
                     double fill) {
  if (absl::Status s = CheckSpatial("windows", x, kernel.size()); !s.ok()) {
    return x.builder()->Fail(s);
  }
  const absl::StatusOr<std::vector<int64_t>> pads = PadPairs(x, kernel.size(), window);
  if (!pads.ok()) return x.builder()->Fail(pads.status());
  const Tensor padded = x.Pad(*pads, fill);
  if (!padded.valid()) return padded;
  const ShapeView lead = padded.shape().first(x.rank() - kernel.size());
  const absl::StatusOr<std::vector<AxisWindow>> axes =
      Geometry(padded.shape().subspan(lead.size()), kernel, window);
  if (!axes.ok()) return x.builder()->Fail(axes.status());

  const bool disjoint = std::ranges::all_of(
      *axes, [](const AxisWindow& a) { return a.kernel <= a.stride && a.dilation <= 1; });
  // The graph may move its shapes while it grows.
  const Shape kept = ToShape(lead);
  const Tensor t = disjoint ? Disjoint(padded, kept, *axes) : Overlapping(padded, kept, *axes);
  // [.., k, o, ..] or [.., o, k, ..] -> [.., o.., k..]
  const auto first = static_cast<int64_t>(kept.size());
  Axes order(kept.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i < axes->size(); ++i) order.push_back(first + 2 * i + (disjoint ? 0 : 1));
  for (size_t i = 0; i < axes->size(); ++i) order.push_back(first + 2 * i + (disjoint ? 1 : 0));
  return t.Permute(order);
}

}  // namespace

Tensor Tensor::Windows(const std::vector<int64_t>& kernel, const Window& window) const {
  return valid() ? PaddedWindows(*this, kernel, window, 0) : *this;
}

Tensor Tensor::MaxPool(const std::vector<int64_t>& kernel, const Window& window) const {
  if (!valid()) return *this;
  if (!IsFloat(dtype())) {
    return builder_->Fail(InvalidArgument("max_pool: element type ", Name(dtype()), " of ",
                                          ToString(shape()), " is not a float"));
  }
  constexpr double kLowest = -std::numeric_limits<double>::infinity();
  return PaddedWindows(*this, kernel, window, kLowest).Max(LastAxes(kernel.size()));
}

Tensor Tensor::AvgPool(const std::vector<int64_t>& kernel, const Window& window,
                       bool count_pads) const {
  if (!valid()) return *this;
  const Axes last = LastAxes(kernel.size());
  const Tensor windows = PaddedWindows(*this, kernel, window, 0);
  const bool padded = std::ranges::any_of(window.pads, [](int64_t p) { return p != 0; });
  if (count_pads || !padded) return windows.Mean(last);
  const Tensor ones = builder_->Full(dtype(), ToShape(shape()), 1);
  return windows.Sum(last) / PaddedWindows(ones, kernel, window, 0).Sum(last);
}

Tensor Tensor::Conv(const Tensor& weight, const Window& window, int64_t groups) const {
  if (!valid() || !weight.valid()) {
    return builder_ == nullptr ? Tensor()
                               : builder_->Fail(InvalidArgument("conv: an operand is empty"));
  }
  const auto bad = [&](const auto&... why) {
    return builder_->Fail(InvalidArgument("conv: input ", ToString(shape()), " and weight ",
                                          ToString(weight.shape()), ", groups ", groups, ": ",
                                          why...));
  };
  if (rank() < 3 || weight.rank() != rank()) return bad("expected [N, C, ...] and [O, C, ...]");
  const int64_t batch = dim(0), channels = dim(1), outputs = weight.dim(0);
  if (groups < 1 || channels % groups != 0 || outputs % groups != 0) {
    return bad("the channels do not divide into groups");
  }
  const int64_t in_group = channels / groups, out_group = outputs / groups;
  if (weight.dim(1) != in_group) {
    return bad("axis 1 of the weight has ", weight.dim(1), ", expected ", in_group);
  }
  const std::vector<int64_t> kernel(weight.shape().begin() + 2, weight.shape().end());
  const auto n = static_cast<int64_t>(kernel.size());
  const Tensor windows = Windows(kernel, window);
  if (!windows.valid()) return windows;
  const std::vector<int64_t> out(windows.shape().begin() + 2, windows.shape().begin() + 2 + n);

  // Both as [batch, group, out_group, out.., in_group, kernel..].
  Shape split = {batch, groups, 1, in_group};
  split.insert(split.end(), out.begin(), out.end());
  split.insert(split.end(), kernel.begin(), kernel.end());
  Axes order = {0, 1, 2};
  for (int64_t i = 0; i < n; ++i) order.push_back(4 + i);
  order.push_back(3);
  for (int64_t i = 0; i < n; ++i) order.push_back(4 + n + i);
  Shape weights = {1, groups, out_group};
  weights.insert(weights.end(), n, 1);
  weights.push_back(in_group);
  weights.insert(weights.end(), kernel.begin(), kernel.end());

  const Tensor products = windows.Reshape(split).Permute(order) * weight.Reshape(weights);
  Shape result = {batch, outputs};
  result.insert(result.end(), out.begin(), out.end());
  return products.Sum(LastAxes(n + 1)).Reshape(result);
}

// [.., m, 1, k] * [.., 1, n, k], summed over k; vectors get an axis that is dropped again.
Tensor Tensor::MatMul(const Tensor& other) const {
  if (!valid() || !other.valid()) {
    return builder_ == nullptr ? Tensor()
                               : builder_->Fail(InvalidArgument("matmul: an operand is empty"));
  }
  const bool row = rank() == 1, column = other.rank() == 1;
  if (rank() == 0 || other.rank() == 0 || dim(-1) != other.dim(column ? 0 : -2)) {
    return builder_->Fail(InvalidArgument("matmul: ", ToString(shape()), " and ",
                                          ToString(other.shape()), ": the last axis has ", dim(-1),
                                          ", the ", column ? "only" : "second to last",
                                          " axis of the other has ", other.dim(column ? 0 : -2)));
  }
  const Tensor a = row ? Unsqueeze(0) : *this;
  const Tensor b = column ? other : other.Transpose();
  Tensor out = (a.Unsqueeze(-2) * (column ? b.Unsqueeze(0) : b.Unsqueeze(-3))).Sum({-1});
  if (column) out = out.Squeeze(-1);
  if (row) out = out.Squeeze(column ? -1 : -2);
  return out;
}

}  // namespace telegrad
