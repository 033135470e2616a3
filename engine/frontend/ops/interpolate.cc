// Resampling along one axis at a time. Output o lies at the exact position (a o + b) / c of the
// input, integers all three, so that no rounding moves it across an element: its quotient is the
// element in front, its remainder the weight of the next one. The transpose, which gradients need,
// goes by inputs: input i meets a run of consecutive outputs, whose begin is known and whose length
// is bounded, so that it is a sum of a few terms and no scattered write. Each is the other's
// derivative.
#include <algorithm>
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/products.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxInterpolatedSize = int64_t{1} << 29;

struct Resampling {
  int64_t axis, in, out;
  int64_t a, b, c;
  bool linear;

  // Of all positions and sizes below.
  DType index_type() const {
    return in * out < std::numeric_limits<int32_t>::max() / 8 ? DType::kInt32 : DType::kInt64;
  }
};

Tensor Resample(const Tensor& x, const Resampling& r);
Tensor Transposed(const Tensor& g, const Resampling& r);

// The elements of an axis at `index`, whose axes take its place.
Tensor PickAlong(const Tensor& x, int64_t axis, const Tensor& index) {
  Axes to_front = {axis}, back;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != axis) to_front.push_back(i);
  }
  for (int64_t i = 0; i < axis; ++i) back.push_back(index.rank() + i);
  for (int64_t i = 0; i < index.rank(); ++i) back.push_back(i);
  for (int64_t i = axis + 1; i < x.rank(); ++i) back.push_back(index.rank() + i - 1);
  return x.Permute(to_front).Gather(index).Permute(back);
}

// The element in front of outputs `o`, the one behind, and the weight of that.
struct SourcePosition {
  Tensor front, back, weight;
};

SourcePosition PlaceOf(const Tensor& o, const Resampling& r, DType type) {
  const Tensor at = (o * r.a + r.b).Maximum(0);
  SourcePosition out{at.FloorDiv(r.c), {}, {}};
  if (!r.linear) return out;
  out.back = (out.front + 1).Minimum(r.in - 1);
  out.weight = at.FloorMod(r.c).Cast(type) * (1.0 / static_cast<double>(r.c));
  return out;
}

// `t` before all axes of `x` from `axis` + its rank on.
Tensor AtAxis(const Tensor& t, const Tensor& x, int64_t axis) {
  Dims shape = t.dims();
  shape.insert(shape.end(), static_cast<size_t>(x.rank() - axis - t.rank()), Dim(1));
  return t.Reshape(shape);
}

Tensor Resample(const Tensor& x, const Resampling& r) {
  if (!x.valid()) return x;
  const SourcePosition place = PlaceOf(x.builder()->Iota(r.index_type(), r.out), r, x.dtype());
  Tensor y = PickAlong(x, r.axis, place.front);
  if (r.linear && y.valid()) {
    const Tensor weight = AtAxis(place.weight, y, r.axis);
    y = y * (1 - weight) + PickAlong(x, r.axis, place.back) * weight;
  }
  x.builder()->SetDerivative(y,
                             {{x}, [r](const Tensor& g) { return std::vector{Transposed(g, r)}; }});
  return y;
}

// Input i is in front of, or behind, the outputs with c (i - 1) <= a o + b < c (i + 1), or of the
// second half of them where nothing is behind.
Tensor Transposed(const Tensor& g, const Resampling& r) {
  if (!g.valid()) return g;
  Builder* b = g.builder();
  const int64_t halves = r.linear ? 2 : 1, count = CeilDiv(halves * r.c, r.a);
  const Tensor i = b->Iota(r.index_type(), r.in).Unsqueeze(-1);
  const Tensor first = (i * r.c + (r.a - 1 - r.b - (halves - 1) * r.c)).FloorDiv(r.a);
  const Tensor o = first + b->Iota(r.index_type(), count);  // [in, count]; outside, g gives 0
  const SourcePosition place = PlaceOf(o, r, g.dtype());
  const Tensor picked = PickAlong(g, r.axis, o);
  const auto part = [&](const Tensor& at, const Tensor& value) {
    return AtAxis(at.Eq(i), picked, r.axis).Where(value, 0);
  };
  Tensor terms;
  if (r.linear && picked.valid()) {
    const Tensor weight = AtAxis(place.weight, picked, r.axis);
    terms = part(place.front, picked * (1 - weight)) + part(place.back, picked * weight);
  } else {
    terms = part(place.front, picked);
  }
  const Tensor x = terms.Sum({r.axis + 1}, true).Squeeze(r.axis + 1).Cast(g.dtype());
  b->SetDerivative(x, {{g}, [r](const Tensor& v) { return std::vector{Resample(v, r)}; }});
  return x;
}

// Every element `times` times in a row, or every `step`-th from `begin` on: views.
Tensor Repeated(const Tensor& x, int64_t axis, int64_t times) {
  Dims spread = x.dims();
  spread.insert(spread.begin() + axis + 1, Dim(times));
  return x.Unsqueeze(axis + 1).Expand(spread).Flatten(axis, axis + 1);
}

Tensor Every(const Tensor& x, int64_t axis, int64_t step, int64_t begin) {
  Dims split = x.dims();
  split[axis] = x.dim(axis) / step;
  split.insert(split.begin() + axis + 1, Dim(step));
  return x.Reshape(split).Slice(axis + 1, begin, begin + 1).Squeeze(axis + 1);
}

Tensor AlongAxis(const Tensor& x, int64_t axis, int64_t out, Interpolation mode, bool corners) {
  const int64_t in = x.dim(axis);
  const bool linear = mode == Interpolation::kLinear;
  if (in == out) return x;
  if (in == 1) return Repeated(x, axis, out);
  if (!linear && out % in == 0) return Repeated(x, axis, out / in);
  if (!linear && in % out == 0) {
    return Every(x, axis, in / out, mode == Interpolation::kNearestExact ? in / out / 2 : 0);
  }
  if (linear && corners && out == 1) return Every(x, axis, in, 0);
  Resampling r{axis, in, out, in, 0, out, linear};
  if (mode == Interpolation::kNearestExact) r = {axis, in, out, 2 * in, in, 2 * out, linear};
  if (linear) r = {axis, in, out, 2 * in, in - out, 2 * out, linear};
  if (linear && corners) r = {axis, in, out, in - 1, 0, out - 1, linear};
  return Resample(x, r);
}

}  // namespace

Tensor Tensor::Interpolate(const Shape& spatial, Interpolation mode, bool align_corners) const {
  if (!valid()) return *this;
  const auto n = static_cast<int64_t>(spatial.size());
  const auto bad = [&](const auto&... why) {
    return builder_->Fail(InvalidArgument("interpolate: ", ToString(dims()), " to ",
                                          ToString(spatial), ": ", why...));
  };
  if (n > rank()) return bad("there are fewer axes than sizes");
  if (align_corners && mode != Interpolation::kLinear) return bad("only linear aligns corners");
  for (int64_t i = 0; i < n; ++i) {
    const Dim& in = dims()[rank() - n + i];
    if (!in.is_static()) return bad("axis ", rank() - n + i, " is symbolic");
    if (in.size() < 1 || spatial[i] < 1 || in.size() > kMaxInterpolatedSize ||
        spatial[i] > kMaxInterpolatedSize) {
      return bad("axis ", rank() - n + i, " goes from ", in.size(), " to ", spatial[i],
                 ", expected sizes in [1, ", kMaxInterpolatedSize, "]");
    }
  }
  const DType type = mode == Interpolation::kLinear ? FloatType(dtype()) : dtype();
  Tensor x = mode == Interpolation::kLinear ? Cast(FactorType(type)) : *this;
  for (int64_t i = 0; i < n; ++i) {
    x = AlongAxis(x, rank() - n + i, spatial[i], mode, align_corners);
  }
  return x.Cast(type);
}

}  // namespace telegrad
