// Convolutions. Three functions are the faces of one trilinear form, the sum over all n, o, c, k of
//
//   x[n, c, i] w[o, c, k] y[n, o, j]   where i = j stride + k dilation - before:
//
// the convolution gives what y meets, its transpose what x meets, and the third what w meets. So
// each one's derivatives are the other two, of every order, and all of them are sums of products
// without a scattered write.
#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/ops/products.h"
#include "engine/frontend/ops/windows.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

struct Geometry {
  AxisWindows axes;
  int64_t groups = 1;

  size_t n() const { return axes.size(); }
  Dims Of(int64_t AxisWindow::* size) const {
    Dims out;
    for (const AxisWindow& a : axes) out.push_back(a.*size);
    return out;
  }
};

Dims Join(std::initializer_list<Dims> parts) {
  Dims out;
  for (const Dims& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

Dims Ones(size_t n) { return Dims(n, Dim(1)); }

Tensor Forward(const Tensor& x, const Tensor& w, const Geometry& g);
Tensor ToInput(const Tensor& y, const Tensor& w, const Geometry& g);
Tensor ToWeight(const Tensor& x, const Tensor& y, const Geometry& g);

// What the gradients of `value`, made of `a` and `b`, are.
template <typename A, typename B>
Tensor WithDerivatives(const Tensor& value, const Tensor& a, const Tensor& b, A of_a, B of_b) {
  if (!value.valid()) return value;
  value.builder()->SetDerivative(value, {{a, b}, [=](const Tensor& v) {
                                           return std::vector{of_a(v).Cast(a.dtype()),
                                                              of_b(v).Cast(b.dtype())};
                                         }});
  return value;
}

// The windows of x [N, C, ..] as [N, groups, 1, out.., C / groups, kernel..].
Tensor GroupedWindows(const Tensor& x, const Geometry& g) {
  const Tensor windows = MakeWindows(x, g.axes);
  const Dims in = x.dims(), out = g.Of(&AxisWindow::out), kernel = g.Of(&AxisWindow::kernel);
  const int64_t in_group = x.dim(1) / g.groups;
  Axes order = {0, 1, 2};
  for (int64_t axis : AxesFrom(4, g.n())) order.push_back(axis);
  order.push_back(3);
  for (int64_t axis : AxesFrom(4 + static_cast<int64_t>(g.n()), g.n())) order.push_back(axis);
  return windows.Reshape(Join({{in[0], g.groups, 1, in_group}, out, kernel})).Permute(order);
}

Tensor Forward(const Tensor& x, const Tensor& w, const Geometry& g) {
  const Factors f = ToFactors("conv", x, w);
  if (!f.valid()) return f.a;
  const int64_t outputs = w.dim(0);
  const Tensor weights = f.b.Reshape(Join(
      {{1, g.groups, outputs / g.groups}, Ones(g.n()), {w.dim(1)}, g.Of(&AxisWindow::kernel)}));
  const Tensor sum = GroupedWindows(f.a, g).Mul(weights).Sum(LastAxes(g.n() + 1), true);
  const Tensor y = sum.Reshape(Join({{x.dims()[0], outputs}, g.Of(&AxisWindow::out)})).Cast(f.type);
  return WithDerivatives(
      y, x, w, [=](const Tensor& v) { return ToInput(v, w, g); },
      [=](const Tensor& v) { return ToWeight(x, v, g); });
}

// [O, C / groups, kernel..]
Tensor ToWeight(const Tensor& x, const Tensor& y, const Geometry& g) {
  const Factors f = ToFactors("conv", x, y);
  if (!f.valid()) return f.a;
  const int64_t outputs = y.dim(1), in_group = x.dim(1) / g.groups;
  const Tensor values = f.b.Reshape(
      Join({{y.dims()[0], g.groups, outputs / g.groups}, g.Of(&AxisWindow::out), Ones(g.n() + 1)}));
  Axes over = {0};
  for (int64_t axis : AxesFrom(3, g.n())) over.push_back(axis);
  const Tensor sum = GroupedWindows(f.a, g).Mul(values).Sum(over, true);
  const Tensor w = sum.Reshape(Join({{outputs, in_group}, g.Of(&AxisWindow::kernel)})).Cast(f.type);
  return WithDerivatives(
      w, x, y, [=](const Tensor& v) { return ToInput(y, v, g); },
      [=](const Tensor& v) { return Forward(x, v, g); });
}

// [N, C, in..] of strides 1: a convolution of y by the flipped weight.
Tensor Flipped(const Tensor& y, const Tensor& w, const Geometry& g) {
  Geometry back{{}, g.groups};
  for (const AxisWindow& a : g.axes) {
    const int64_t before = a.extent() - 1 - a.before;
    back.axes.push_back(
        {a.out, before, a.in + a.extent() - 1 - a.out - before, a.kernel, 1, a.dilation, a.in, 0});
  }
  const Dims split = Join({{g.groups, w.dim(0) / g.groups, w.dim(1)}, g.Of(&AxisWindow::kernel)});
  const Tensor weights = w.Reshape(split)
                             .Transpose(1, 2)
                             .Flip(AxesFrom(3, g.n()))
                             .Reshape(Join({{1, g.groups, w.dim(1)},
                                            Ones(g.n()),
                                            {w.dim(0) / g.groups},
                                            g.Of(&AxisWindow::kernel)}));
  return GroupedWindows(y, back).Mul(weights).Sum(LastAxes(g.n() + 1), true);
}

// The same of any stride: what each element of y adds to each element of its window, [N, C, out..,
// kernel..], then the sum of those that meet. Zeros between the elements of y would cost as many
// products as the strides' product more.
Tensor Scattered(const Tensor& y, const Tensor& w, const Geometry& g) {
  const Dims out = g.Of(&AxisWindow::out), kernel = g.Of(&AxisWindow::kernel);
  const int64_t out_group = w.dim(0) / g.groups;
  // [N, groups, C / groups, out.., kernel.., O / groups]
  Axes last_y = {0, 1}, last_w = {0, 2};
  for (int64_t axis : AxesFrom(3, g.n())) {
    last_y.push_back(axis);
    last_w.push_back(axis);
  }
  last_y.push_back(2);
  last_w.push_back(1);
  const Tensor values =
      y.Reshape(Join({{y.dims()[0], g.groups, out_group}, out}))
          .Permute(last_y)
          .Reshape(Join({{y.dims()[0], g.groups, 1}, out, Ones(g.n()), {out_group}}));
  const Tensor weights =
      w.Reshape(Join({{g.groups, out_group, w.dim(1)}, kernel}))
          .Permute(last_w)
          .Reshape(Join({{1, g.groups, w.dim(1)}, Ones(g.n()), kernel, {out_group}}));
  const Tensor sum = values.Mul(weights).Sum({-1}, true);
  return SumWindows(sum.Reshape(Join({{y.dims()[0], w.dim(1) * g.groups}, out, kernel})), g.axes);
}

// [N, C, in..]
Tensor ToInput(const Tensor& y, const Tensor& w, const Geometry& g) {
  const Factors f = ToFactors("conv_transpose", y, w);
  if (!f.valid()) return f.a;
  const bool strided =
      std::ranges::any_of(g.axes, [](const AxisWindow& a) { return a.stride > 1; });
  const Tensor sum = strided ? Scattered(f.a, f.b, g) : Flipped(f.a, f.b, g);
  const Tensor x =
      sum.Reshape(Join({{y.dims()[0], w.dim(1) * g.groups}, g.Of(&AxisWindow::in)})).Cast(f.type);
  return WithDerivatives(
      x, y, w, [=](const Tensor& v) { return Forward(v, w, g); },
      [=](const Tensor& v) { return ToWeight(v, y, g); });
}

// What both have to be: [N, C, ...] and a weight of the same rank whose axis 0, of `first`, divides
// into the groups.
absl::Status CheckOperands(std::string_view op, const Tensor& x, const Tensor& w, int64_t groups) {
  const auto bad = [&](const auto&... why) {
    return InvalidArgument(op, ": input ", ToString(x.dims()), " and weight ", ToString(w.dims()),
                           ", groups ", groups, ": ", why...);
  };
  if (x.rank() < 3 || w.rank() != x.rank()) {
    return bad("expected [N, C, ...] and ",
               op == "conv" ? "[O, C / groups, ...]" : "[C, O / groups, ...]");
  }
  const Dims in = x.dims();
  if (!w.dims().is_static() || !in[1].is_static()) return bad("only N may be symbolic");
  if (groups < 1 || x.dim(1) % groups != 0 || w.dim(0) % groups != 0) {
    return bad("the channels do not divide into groups");
  }
  const int64_t axis = op == "conv" ? 1 : 0;
  const int64_t expected = op == "conv" ? x.dim(1) / groups : x.dim(1);
  if (w.dim(axis) != expected) {
    return bad("axis ", axis, " of the weight has ", w.dim(axis), ", expected ", expected);
  }
  return absl::OkStatus();
}

// The windows of an axis that have an element of the input at one tap.
struct Seeing {
  int64_t first, end;
  int64_t size() const { return std::max<int64_t>(0, end - first); }
};
Seeing SeeingAt(const AxisWindow& a, int64_t tap) {
  const int64_t begin = tap * a.dilation - a.before;  // of the first window
  const int64_t beyond = a.in - begin;                // elements that are left of the input
  return {begin >= 0 ? 0 : (-begin + a.stride - 1) / a.stride,
          beyond <= 0 ? 0 : std::min(a.out, (beyond - 1) / a.stride + 1)};
}
bool IsSeen(const AxisWindow& a, int64_t tap) { return SeeingAt(a, tap).size() > 0; }

// The taps from the first to the last one that is seen: of a window that is dilated beyond a small
// image the others only ever meet padding.
Tensor CutToSeen(Tensor weight, AxisWindows* axes) {
  for (size_t i = 0; i < axes->size(); ++i) {
    AxisWindow& a = (*axes)[i];
    int64_t first = 0, last = a.kernel - 1;
    while (first < last && !IsSeen(a, first)) ++first;
    while (first < last && !IsSeen(a, last)) --last;
    if (last - first + 1 == a.kernel) continue;
    AxisWindow cut = a;
    cut.before -= first * a.dilation;
    cut.kernel = last - first + 1;
    if (cut.kernel == 1) cut.dilation = 0;
    cut.after = (a.out - 1) * a.stride + cut.extent() - a.in - cut.before;
    cut.cut = 0;
    if (cut.before < 0 || cut.after < 0) continue;
    weight = weight.Slice(2 + static_cast<int64_t>(i), first, last + 1);
    a = cut;
  }
  return weight;
}

// Whether a convolution for each tap of the axis, of only those windows that see it, has less than
// half of the products, of which each still has the results that a tile of a product takes.
bool PaysTapByTap(const Geometry& g, size_t axis) {
  constexpr int64_t kLeastResults = 16;
  const AxisWindow& a = g.axes[axis];
  int64_t others = 1, seen = 0, least = a.out;
  for (const AxisWindow& other : g.axes) others *= other.out;
  for (int64_t tap = 0; tap < a.kernel; ++tap) {
    seen += SeeingAt(a, tap).size();
    least = std::min(least, SeeingAt(a, tap).size());
  }
  return a.kernel > 1 && 2 * seen <= a.kernel * a.out && others / a.out * least >= kLeastResults;
}

// The convolution, for axes from `axis` on in as many parts as pay: of a window that is dilated so
// that most taps of most windows meet padding, these products are not computed.
Tensor ForwardSeen(const Tensor& x, const Tensor& w, const Geometry& g, size_t axis = 0) {
  if (axis == g.n()) return Forward(x, w, g);
  if (!PaysTapByTap(g, axis)) return ForwardSeen(x, w, g, axis + 1);
  const AxisWindow& a = g.axes[axis];
  const auto of_x = static_cast<int64_t>(axis) + 2;
  Tensor sum;
  for (int64_t tap = 0; tap < a.kernel; ++tap) {
    const Seeing seeing = SeeingAt(a, tap);
    const int64_t begin = tap * a.dilation - a.before + seeing.first * a.stride;
    const int64_t in = (seeing.size() - 1) * a.stride + 1;
    Geometry own = g;
    own.axes[axis] = {in, 0, 0, 1, a.stride, 0, seeing.size(), 0};
    const Tensor part =
        ForwardSeen(x.Slice(of_x, begin, begin + in), w.Slice(of_x, tap, tap + 1), own, axis + 1);
    std::vector<int64_t> around(2 * (g.n() + 2), 0);
    around[static_cast<size_t>(2 * of_x)] = seeing.first;
    around[static_cast<size_t>(2 * of_x + 1)] = a.out - seeing.end;
    sum = sum.valid() ? sum + part.Pad(around) : part.Pad(around);
  }
  return sum;
}

std::vector<int64_t> KernelOf(const Tensor& w) {
  return std::vector<int64_t>(w.shape().begin() + 2, w.shape().end());
}

}  // namespace

Tensor Tensor::Conv(const Tensor& weight, const Window& window, int64_t groups) const {
  const Factors f = ToFactors("conv", *this, weight);
  if (!f.valid()) return f.a;
  if (absl::Status s = CheckOperands("conv", *this, weight, groups); !s.ok()) {
    return builder_->Fail(s);
  }
  absl::StatusOr<AxisWindows> axes = ResolveWindows("conv", *this, KernelOf(weight), window);
  if (!axes.ok()) return builder_->Fail(axes.status());
  const Tensor seen = CutToSeen(weight, &*axes);
  const Geometry g{*std::move(axes), groups};
  const bool few_bits = f.type != DType::kFloat32 && f.type != DType::kFloat64;
  return few_bits || groups > 1 ? Forward(*this, seen, g) : ForwardSeen(*this, seen, g);
}

Tensor Tensor::ConvTranspose(const Tensor& weight, const Window& window, int64_t groups,
                             const std::vector<int64_t>& output_pads) const {
  const Factors f = ToFactors("conv_transpose", *this, weight);
  if (!f.valid()) return f.a;
  if (absl::Status s = CheckOperands("conv_transpose", *this, weight, groups); !s.ok()) {
    return builder_->Fail(s);
  }
  absl::StatusOr<Geometry> g = [&]() -> absl::StatusOr<Geometry> {
    constexpr std::string_view kOp = "conv_transpose";
    const size_t n = static_cast<size_t>(rank()) - 2;
    const std::vector<int64_t> kernels = KernelOf(weight);
    const std::vector<int64_t> none = {0};
    TG_ASSIGN_OR_RETURN(const auto strides, OnePerAxis(kOp, "stride", window.stride, n, 1));
    TG_ASSIGN_OR_RETURN(const auto dilations, OnePerAxis(kOp, "dilation", window.dilation, n, 1));
    TG_ASSIGN_OR_RETURN(
        const auto pads,
        OnePerAxis(kOp, "pads", window.pads.empty() ? none : window.pads, 2 * n, 0));
    TG_ASSIGN_OR_RETURN(
        const auto ends,
        OnePerAxis(kOp, "output_pads", output_pads.empty() ? none : output_pads, n, 0));
    Geometry out{{}, groups};
    for (size_t i = 0; i < n; ++i) {
      const Dim& size = dims()[2 + i];
      AxisWindow a{0,          pads[2 * i],  pads[2 * i + 1], kernels[i],
                   strides[i], dilations[i], size.size(),     0};
      if (ends[i] >= std::max(a.stride, a.dilation)) {
        return InvalidArgument("conv_transpose: output_pads ", ends[i], " on axis ", i,
                               ", expected less than the stride ", a.stride, " or the dilation ",
                               a.dilation);
      }
      if (a.kernel == 1) a.dilation = 0;
      a.in = (a.out - 1) * a.stride + a.extent() + ends[i] - a.before - a.after;
      if (!size.is_static() || a.kernel < 1 || a.out < 1 || a.in < 0) {
        return InvalidArgument("conv_transpose: input ", ToString(dims()), " and weight ",
                               ToString(weight.dims()), ": spatial axis ", i,
                               !size.is_static()           ? " is symbolic, expected a fixed size"
                               : a.kernel < 1 || a.out < 1 ? " has no elements"
                                                           : " would become smaller than nothing");
      }
      out.axes.push_back(a);
    }
    return out;
  }();
  return g.ok() ? ToInput(*this, weight, *g) : builder_->Fail(g.status());
}

}  // namespace telegrad
