// Windows out of movement operations alone. An axis of size i is repeated until k rows of length
// i + d fit into it. Row k then starts d elements later in the axis than row k - 1, so element
// (k, p) is x[(k (i + d) + p) mod i] = x[k d + p], and keeping every s-th of the first o s elements
// of each row leaves x[k d + o s]. As index arithmetic the modulo vanishes, because k d + o s < i.
//
// The transpose goes the other way: each row k gets zeros between its elements, so that they are s
// apart, and margins; rows of length r read as rows of length r - d shift row k by k d; and the sum
// over the rows is what each position got. That is k terms for each element and no scattered write,
// which the rules for the single operations would not find.
#include <algorithm>
#include <numeric>

#include "engine/base/status.h"
#include "engine/frontend/ops/windows.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// Bounds window numbers and sizes so that no product below overflows.
constexpr int64_t kMaxWindow = int64_t{1} << 20;
constexpr int64_t kMaxWindowedSize = int64_t{1} << 40;

using List = std::vector<int64_t>;

// `lead` unchanged, then some dims for each window axis.
template <typename F>
Dims PerAxis(const Dims& lead, const AxisWindows& axes, F list) {
  Dims out = lead;
  for (const AxisWindow& a : axes) {
    for (int64_t dim : list(a)) out.push_back(dim);
  }
  return out;
}

// The first elements of every axis.
Tensor Begin(const Tensor& x, const Dims& sizes) {
  std::vector<int64_t> pairs;
  for (const Dim& size : sizes) pairs.insert(pairs.end(), {0, size.size()});
  return x.Shrink(pairs);
}

Dims LeadOf(const Tensor& x, size_t others) {
  Dims lead = x.dims();
  lead.resize(lead.size() - others, Dim(0));
  return lead;
}

// The pairs of all axes from those of the last.
std::vector<int64_t> AllPairs(const Tensor& x, const std::vector<int64_t>& last) {
  std::vector<int64_t> out(2 * static_cast<size_t>(x.rank()) - last.size(), 0);
  out.insert(out.end(), last.begin(), last.end());
  return out;
}

// A padded [.., i, ..] -> [.., k, o, ..]
Tensor Overlapping(const Tensor& x, const Dims& lead, const AxisWindows& axes) {
  // A row must hold o s elements; f repeats of the axis make it long enough.
  const auto row = [](const AxisWindow& a) {
    const int64_t f = CeilDiv(std::max(a.padded(), a.out * a.stride - a.dilation), a.padded());
    return a.padded() * f + a.dilation;
  };
  const auto repeats = [&](const AxisWindow& a) { return CeilDiv(a.kernel * row(a), a.padded()); };
  const auto dims = [&](auto list) { return PerAxis(lead, axes, list); };
  Tensor t = x.Reshape(dims([](const AxisWindow& a) { return List{1, a.padded()}; }));
  t = t.Expand(dims([&](const AxisWindow& a) { return List{repeats(a), a.padded()}; }));
  t = t.Reshape(dims([&](const AxisWindow& a) { return List{repeats(a) * a.padded()}; }));
  t = Begin(t, dims([&](const AxisWindow& a) { return List{a.kernel * row(a)}; }));
  t = t.Reshape(dims([&](const AxisWindow& a) { return List{a.kernel, row(a)}; }));
  t = Begin(t, dims([](const AxisWindow& a) { return List{a.kernel, a.out * a.stride}; }));
  t = t.Reshape(dims([](const AxisWindow& a) { return List{a.kernel, a.out, a.stride}; }));
  t = Begin(t, dims([](const AxisWindow& a) { return List{a.kernel, a.out, 1}; }));
  return t.Reshape(dims([](const AxisWindow& a) { return List{a.kernel, a.out}; }));
}

// Windows that do not overlap are the rows of a reshape. [.., i, ..] -> [.., o, k, ..]
Tensor Disjoint(const Tensor& x, const Dims& lead, const AxisWindows& axes) {
  const auto dims = [&](auto list) { return PerAxis(lead, axes, list); };
  Tensor t = Begin(
      x, dims([](const AxisWindow& a) { return List{std::min(a.padded(), a.out * a.stride)}; }));
  // A last window may end before its stride does; what is added here is cut off again below.
  std::vector<int64_t> pads;
  for (const AxisWindow& a : axes) {
    pads.insert(pads.end(), {0, std::max<int64_t>(0, a.out * a.stride - a.padded())});
  }
  t = t.Pad(AllPairs(t, pads));
  t = t.Reshape(dims([](const AxisWindow& a) { return List{a.out, a.stride}; }));
  return Begin(t, dims([](const AxisWindow& a) { return List{a.out, a.kernel}; }));
}

}  // namespace

Axes AxesFrom(int64_t first, size_t n) {
  Axes out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

Tensor PadOrCrop(const Tensor& x, const std::vector<int64_t>& pairs, double fill) {
  if (!x.valid()) return x;
  const std::vector<int64_t> all = AllPairs(x, pairs);
  std::vector<int64_t> pads, part;
  for (size_t i = 0; i < all.size(); i += 2) {
    // The part [begin, end) of the axis that stays.
    const int64_t size = x.shape()[i / 2], first = -all[i], last = size + all[i + 1];
    const int64_t begin = std::clamp<int64_t>(first, 0, size);
    const int64_t end = std::clamp<int64_t>(last, begin, size);
    part.insert(part.end(), {begin, end});
    const int64_t before = std::clamp<int64_t>(begin - first, 0, last - first);
    pads.insert(pads.end(), {before, last - first - before - (end - begin)});
  }
  return x.Shrink(part).Pad(pads, fill);
}

absl::StatusOr<std::vector<int64_t>> OnePerAxis(std::string_view op, std::string_view what,
                                                const std::vector<int64_t>& list, size_t n,
                                                int64_t low) {
  std::vector<int64_t> out = list.size() == 1 ? std::vector<int64_t>(n, list[0]) : list;
  if (out.size() != n) {
    return InvalidArgument(op, ": ", out.size(), " numbers of ", what, ", expected 1 or ", n);
  }
  for (int64_t v : out) {
    if (v < low || v > kMaxWindow) {
      return InvalidArgument(op, ": ", what, " ", v, " is outside of [", low, ", ", kMaxWindow,
                             "]");
    }
  }
  return out;
}

absl::StatusOr<AxisWindows> ResolveWindows(std::string_view op, const Tensor& x,
                                           const std::vector<int64_t>& kernel,
                                           const Window& window) {
  const size_t n = kernel.size();
  if (n == 0 || x.rank() < static_cast<int64_t>(n)) {
    return InvalidArgument(op, ": ", ToString(x.dims()), " does not have ", n, " spatial axes");
  }
  TG_ASSIGN_OR_RETURN(const auto kernels, OnePerAxis(op, "kernel", kernel, n, 1));
  TG_ASSIGN_OR_RETURN(const auto strides, OnePerAxis(op, "stride", window.stride, n, 1));
  TG_ASSIGN_OR_RETURN(const auto dilations, OnePerAxis(op, "dilation", window.dilation, n, 1));
  std::vector<int64_t> pads = window.pads.empty() ? std::vector<int64_t>{0} : window.pads;
  TG_ASSIGN_OR_RETURN(pads, OnePerAxis(op, "pads", pads, 2 * n, 0));
  const Dims dims = x.dims();
  AxisWindows out(n);
  for (size_t i = 0; i < n; ++i) {
    const Dim& in = dims[dims.size() - n + i];
    AxisWindow& a = out[i];
    a = {in.size(), pads[2 * i], pads[2 * i + 1], kernels[i], strides[i], dilations[i], 0, 0};
    if (a.kernel == 1) a.dilation = 0;  // makes a row exactly the axis
    const int64_t room = a.padded() - a.extent();
    if (!in.is_static() || room < 0 || a.in > kMaxWindowedSize) {
      return InvalidArgument(op, ": spatial axis ", i, " of ", ToString(dims), ", padded by ",
                             a.before, " and ", a.after,
                             !in.is_static() ? ", is symbolic, expected a fixed size"
                             : room < 0 ? StrCat(", is smaller than the window of ", a.extent())
                                        : StrCat(", is over the limit of ", kMaxWindowedSize));
    }
    a.out = room / a.stride + 1;
    // A window more, unless it would begin in the padding behind.
    if (window.ceil_mode && room % a.stride != 0 && a.out * a.stride < a.in + a.before) {
      a.cut = a.stride - room % a.stride;
      ++a.out;
    }
  }
  return out;
}

Tensor MakeWindows(const Tensor& x, const AxisWindows& axes, double fill) {
  std::vector<int64_t> pads;
  for (const AxisWindow& a : axes) pads.insert(pads.end(), {a.before, a.after + a.cut});
  const Tensor padded = PadOrCrop(x, pads, fill);
  if (!padded.valid()) return padded;
  const Dims lead = LeadOf(padded, axes.size());
  const bool disjoint = std::ranges::all_of(
      axes, [](const AxisWindow& a) { return a.kernel <= a.stride && a.dilation <= 1; });
  const Tensor t = disjoint ? Disjoint(padded, lead, axes) : Overlapping(padded, lead, axes);
  // [.., k, o, ..] or [.., o, k, ..] -> [.., o.., k..]
  const auto first = static_cast<int64_t>(lead.size());
  Axes order = AxesFrom(0, lead.size());
  for (size_t i = 0; i < axes.size(); ++i) order.push_back(first + 2 * i + (disjoint ? 0 : 1));
  for (size_t i = 0; i < axes.size(); ++i) order.push_back(first + 2 * i + (disjoint ? 1 : 0));
  const Tensor windows = t.Permute(order);
  if (!disjoint) {
    x.builder()->SetDerivative(
        windows, {{x}, [axes](const Tensor& g) { return std::vector{SumWindows(g, axes)}; }});
  }
  return windows;
}

Tensor SumWindows(const Tensor& windows, const AxisWindows& axes) {
  if (!windows.valid()) return windows;
  const size_t n = axes.size();
  const Dims lead = LeadOf(windows, 2 * n);
  const auto dims = [&](auto list) { return PerAxis(lead, axes, list); };
  // The elements of a row, s apart; those that the axis and its padding in front can hold.
  const auto used = [](const AxisWindow& a) { return (a.out - 1) * a.stride + 1; };
  const auto margin = [](const AxisWindow& a) { return a.extent() - 1; };
  const auto row = [&](const AxisWindow& a) {
    return margin(a) + std::max(a.before + a.in, used(a)) + a.dilation;
  };
  const auto first = static_cast<int64_t>(lead.size());
  Axes order = AxesFrom(0, lead.size());
  for (size_t i = 0; i < n; ++i) {
    order.push_back(first + static_cast<int64_t>(n + i));
    order.push_back(first + static_cast<int64_t>(i));
  }
  Tensor t = windows.Permute(order);  // [.., k, o, ..]
  t = t.Reshape(dims([](const AxisWindow& a) { return List{a.kernel, a.out, 1}; }));
  std::vector<int64_t> pads;
  for (const AxisWindow& a : axes) pads.insert(pads.end(), {0, 0, 0, 0, 0, a.stride - 1});
  t = t.Pad(AllPairs(t, pads));
  t = t.Reshape(dims([](const AxisWindow& a) { return List{a.kernel, a.out * a.stride}; }));
  t = Begin(t, dims([&](const AxisWindow& a) { return List{a.kernel, used(a)}; }));
  pads.clear();
  for (const AxisWindow& a : axes) {
    pads.insert(pads.end(), {0, 0, margin(a), row(a) - margin(a) - used(a)});
  }
  t = t.Pad(AllPairs(t, pads));
  t = t.Reshape(dims([&](const AxisWindow& a) { return List{a.kernel * row(a)}; }));
  const auto shorter = [&](const AxisWindow& a) { return row(a) - a.dilation; };
  t = Begin(t, dims([&](const AxisWindow& a) { return List{a.kernel * shorter(a)}; }));
  t = t.Reshape(dims([&](const AxisWindow& a) { return List{a.kernel, shorter(a)}; }));
  std::vector<int64_t> part;
  for (const Dim& dim : lead) part.insert(part.end(), {0, dim.size()});
  Axes rows;
  for (size_t i = 0; i < n; ++i) {
    const int64_t begin = margin(axes[i]) + axes[i].before;
    part.insert(part.end(), {0, axes[i].kernel, begin, begin + axes[i].in});
    rows.push_back(first + 2 * static_cast<int64_t>(i));
  }
  const Tensor sum =
      t.Shrink(part).Sum(rows, true).Reshape(dims([](const AxisWindow& a) { return List{a.in}; }));
  windows.builder()->SetDerivative(
      sum, {{windows}, [axes](const Tensor& g) { return std::vector{MakeWindows(g, axes)}; }});
  return sum;
}

Tensor Tensor::Windows(const std::vector<int64_t>& kernel, const Window& window) const {
  if (!valid()) return *this;
  const absl::StatusOr<AxisWindows> axes = ResolveWindows("windows", *this, kernel, window);
  return axes.ok() ? MakeWindows(*this, *axes) : builder_->Fail(axes.status());
}

}  // namespace telegrad
