// A row of kKinds makes one graph: it draws sizes and types, adds inputs with their first contents,
// and names what comes out. Results that are compared exactly (integers) are made of inputs, or of
// what is the same for every order of a sum.
#include "tests/devices/unusual_graphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/base/strings.h"
#include "engine/frontend/autograd/gradient.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/index.h"
#include "engine/ir/scalar.h"

namespace telegrad::testing {
namespace {

using enum DType;

constexpr DType kFloats[] = {kFloat32, kFloat16, kBFloat16, kFloat64};
constexpr DType kInts[] = {kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64};
constexpr DType kIndices[] = {kInt64, kInt32, kInt8, kInt16, kUInt8, kUInt32};
constexpr DType kEights[] = {kFloat8E4M3, kFloat8E5M2, kFloat8E4M3Fnuz, kFloat8E5M2Fnuz};

class Maker {
 public:
  explicit Maker(uint64_t seed) : rng_(seed) {}

  int64_t Below(int64_t n) { return static_cast<int64_t>(rng_() % static_cast<uint64_t>(n)); }
  int64_t From(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Chance(int64_t n) { return Below(n) == 0; }
  template <typename T, size_t N>
  T OneOf(const T (&items)[N]) {
    return items[Below(N)];
  }
  template <typename T>
  T OneOf(std::initializer_list<T> items) {
    return items.begin()[Below(static_cast<int64_t>(items.size()))];
  }
  int64_t Size() { return OneOf({1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 65, 127, 129}); }
  int64_t Small() { return OneOf({1, 2, 3, 4, 5, 8, 9, 17}); }
  DType Float() { return OneOf(kFloats); }
  DType Int() { return OneOf(kInts); }
  DType Number() { return Chance(2) ? Float() : Int(); }
  DType Any() { return Chance(6) ? kBool : Chance(5) ? OneOf(kEights) : Number(); }
  int64_t Axis(int64_t rank) { return Below(rank); }
  Shape SomeShape(int64_t most = 3) {
    Shape shape(1 + Below(most));
    for (int64_t& d : shape) d = Small();
    shape[Below(static_cast<int64_t>(shape.size()))] = Size();
    return shape;
  }
  Axes SomeAxes(int64_t rank) {
    Axes axes;
    for (int64_t i = 0; i < rank; ++i) {
      if (Chance(2)) axes.push_back(i);
    }
    if (axes.empty()) axes.push_back(Axis(rank));
    return axes;
  }

  // Numbers of about two standard deviations, with ties; now and then one that is none.
  Tensor In(DType dtype, const Shape& shape, bool special = false) {
    std::normal_distribution<double> normal;
    return Filled(dtype, shape, [&] {
      if (IsFloat(dtype)) {
        constexpr double kSpecial[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 6e4, -3e38};
        const double x =
            special && Chance(9) ? OneOf(kSpecial) : std::round(normal(rng_) * 64) / 32;
        return ScalarFromDouble(dtype, std::isnan(x) && !HasNan(dtype) ? 1.0 : x);
      }
      if (IsBool(dtype)) return ScalarFromInt(dtype, Below(2));
      constexpr int64_t kSpecial[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, -1, 0, 128, 255};
      return ScalarFromInt(dtype, special && Chance(6) ? OneOf(kSpecial) : From(-9, 11));
    });
  }
  Tensor Indices(DType dtype, const Shape& shape, int64_t low, int64_t high) {
    return Filled(dtype, shape, [&] { return ScalarFromInt(dtype, From(low, high)); });
  }
  template <typename Next>
  Tensor Filled(DType dtype, const Shape& shape, Next next) {
    const int64_t n = NumElements(shape), bits = Info(dtype).bits;
    std::vector<uint8_t> bytes(static_cast<size_t>(BytesOf(dtype, n)));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t raw = ScalarToMemory(dtype, next());
      if (IsPacked(dtype)) {
        bytes[i * bits / 8] |= static_cast<uint8_t>((raw & ((1 << bits) - 1)) << (i * bits % 8));
      } else {
        std::memcpy(bytes.data() + i * bits / 8, &raw, bits / 8);
      }
    }
    contents_.push_back(std::move(bytes));
    return b.Param(dtype, shape, StrCat("in", contents_.size()));
  }
  void Out(const Tensor& value) {
    contents_.emplace_back();
    b.Output(value, StrCat("out", contents_.size()));
  }

  absl::StatusOr<UnusualGraph> Finish() {
    TG_ASSIGN_OR_RETURN(Plan plan, b.Finish());
    UnusualGraph out{.plan = std::move(plan), .slots = std::move(contents_)};
    for (size_t i = 0; i < out.slots.size(); ++i) {
      const Slot& slot = out.plan.slots[i];
      out.slots[i].resize(static_cast<size_t>(BytesOf(slot.dtype, NumElements(slot.shape))));
    }
    return out;
  }

  Builder b;

 private:
  std::mt19937_64 rng_;
  Slots contents_;  // by slot
};

constexpr ScatterKind kScatters[] = {ScatterKind::kSet, ScatterKind::kAdd, ScatterKind::kMul,
                                     ScatterKind::kMin, ScatterKind::kMax};

void Gathers(Maker& m) {
  const Tensor x = m.In(m.Any(), m.SomeShape(), true);
  const int64_t n = x.dim(0);
  m.Out(x.Gather(m.Indices(m.OneOf(kIndices), m.SomeShape(2), -2, n + 1)));
  const int64_t axis = m.Axis(x.rank());
  m.Out(x.IndexSelect(axis, m.Indices(kInt64, {m.Small()}, 0, x.dim(axis) - 1)));
  Shape along(x.shape().begin(), x.shape().end());
  along[axis] = m.Small();
  m.Out(x.TakeAlong(axis,
                    m.Indices(m.OneOf({kInt32, kInt64}), along, -x.dim(axis) - 1, x.dim(axis))));
  const Tensor rows = m.Indices(kInt32, {m.Small()}, -n, n - 1);
  m.Out(x.At({rows, Ellipsis()}));
}

void Scatters(Maker& m) {
  const DType dtype = m.Number();
  const Tensor x = m.In(dtype, m.SomeShape());
  const int64_t n = x.dim(0), updates = m.Size();
  Shape rows(x.shape().begin(), x.shape().end());
  rows[0] = updates;
  const ScatterKind kind = m.OneOf(kScatters);
  m.Out(x.Scatter(m.Indices(m.OneOf(kIndices), {updates}, -1, n + 1), m.In(dtype, rows), kind));
  const int64_t axis = m.Axis(x.rank());
  Shape along(x.shape().begin(), x.shape().end());
  along[axis] = m.Small();
  m.Out(x.PutAlong(axis, m.Indices(kInt64, along, 0, x.dim(axis) - 1), m.In(dtype, along),
                   m.OneOf(kScatters)));
  const Tensor y = m.In(dtype, {m.Small(), m.Small(), m.Small()});
  const int64_t count = m.Size();
  const Tensor place = m.Indices(kInt64, {count, 2}, 0, std::min(y.dim(0), y.dim(1)) - 1);
  m.Out(y.GatherNd(place));
  m.Out(y.ScatterNd(place, m.In(dtype, {count, y.dim(2)}), m.OneOf(kScatters)));
}

void SetsOfViews(Maker& m) {
  const Tensor x = m.In(m.Any(), {m.Size(), m.Small(), 4});
  const int64_t rows = x.dim(0);
  m.Out(x.Set({Slice({}, {}, m.From(1, 3)), m.Below(x.dim(1)), Slice(1, 3)}, m.In(x.dtype(), {2})));
  m.Out(x.Set({m.Indices(kInt64, {m.Small()}, -rows, rows - 1), Ellipsis()}, m.In(x.dtype(), {4})));
  m.Out(x.At({Slice({}, {}, -m.From(1, 2)), Ellipsis(), Slice(3, 0, -1)}));
}

void Sorts(Maker& m) {
  const Tensor x = m.In(m.OneOf({kFloat32, kFloat16, kBFloat16, kFloat64, kInt8, kInt64, kUInt32}),
                        {m.Small(), m.Size(), m.OneOf({1, 2, 3})}, m.Chance(2));
  const int64_t axis = m.Axis(3);
  const bool falling = m.Chance(2);
  const auto [values, places] = x.Sort(axis, falling);
  m.Out(values);
  m.Out(places);
  const auto [top, where] = x.TopK(m.From(1, x.dim(axis)), axis, m.Chance(2));
  m.Out(top);
  m.Out(where);
  m.Out(x.ArgMax(axis));
  m.Out(x.ArgMin());
}

void Scans(Maker& m) {
  const Tensor x = m.In(m.Number(), m.SomeShape());
  const int64_t axis = m.Axis(x.rank());
  m.Out(x.CumSum(axis));
  const auto [values, places] = x.CumMax(axis);
  m.Out(values);
  m.Out(places);
  m.Out(m.In(m.Int(), m.SomeShape()).CumProd(0));
  m.Out(m.In(m.OneOf({kFloat32, kFloat64}), {3, m.Size()}).LogCumSumExp(-1));
}

void Reductions(Maker& m) {
  const Tensor x = m.In(m.Number(), m.SomeShape());
  const Axes axes = m.SomeAxes(x.rank());
  m.Out(x.Sum(axes));
  m.Out(x.Max(axes, true));
  m.Out(x.Min(m.SomeAxes(x.rank())));
  m.Out(x.Mean(axes));
  m.Out(m.In(m.Int(), m.SomeShape()).Prod({0}));
  const Tensor mask = m.In(kBool, m.SomeShape());
  m.Out(mask.Any(m.SomeAxes(mask.rank())));
  m.Out(mask.All(m.SomeAxes(mask.rank())));
  m.Out(mask.CountNonzero());
  m.Out(m.In(m.Float(), {m.Size(), m.Size()}).LogSumExp({m.Axis(2)}));
}

void Statistics(Maker& m) {
  const Tensor x = m.In(m.Float(), {m.Small(), m.Size(), m.Small()});
  m.Out(x.Var(m.SomeAxes(3), 0));
  m.Out(x.Norm({1}, m.OneOf({1.0, 2.0, 3.0})));
  m.Out(x.Softmax(m.Axis(3)));
  m.Out(x.Cast(kFloat32).LogSoftmax(m.Axis(3)));
  m.Out(x.LayerNorm({-1}));
  m.Out(x.Cast(kFloat32).RmsNorm(1));
  m.Out(m.In(kFloat32, {2, 6, m.Size()}).GroupNorm(m.OneOf({1, 2, 3, 6})));
}

// Some axis, or what is left of it, has no elements.
void Empty(Maker& m) {
  const DType dtype = m.Number();
  const int64_t n = m.Small();
  const Tensor x = m.In(dtype, {n, 0, 3}), y = m.In(dtype, {n, 4, 3});
  m.Out(x.Sum({1}));
  m.Out(x.Prod({1, 2}));
  m.Out(Concat(std::array{x, y, x}, 1));
  m.Out(m.In(dtype, {n, 0}).MatMul(m.In(dtype, {0, 5})));
  m.Out(m.In(dtype, {0, 3}).MatMul(m.In(dtype, {3, 5})));
  m.Out(y.Gather(m.Indices(kInt64, {0}, 0, 0)));
  m.Out(m.In(dtype, {0, 3}).Gather(m.Indices(kInt64, {2}, -1, 1)));
  m.Out(y.Slice(1, 2, 2) + 1);
  m.Out(y.Scatter(m.Indices(kInt64, {0}, 0, 0), m.In(dtype, {0, 4, 3}), ScatterKind::kSet));
  m.Out(m.In(kFloat32, {3, 0}).Softmax(-1));
  m.Out(m.In(kBool, {0}).All());
}

void Convolutions(Maker& m) {
  const DType dtype = m.OneOf({kFloat32, kFloat16, kBFloat16, kFloat32, kFloat64});
  const int64_t groups = m.OneOf({1, 1, 2, 3, 5}), in = groups * m.From(1, 5);
  const int64_t out = groups * m.OneOf({1, 2, 3, 7, 11});
  const std::vector<int64_t> window{m.From(1, 4), m.From(1, 3)};
  const Tensor x = m.In(dtype, {m.From(1, 3), in, m.From(9, 17), m.From(9, 13)});
  const Tensor w = m.In(dtype, {out, in / groups, window[0], window[1]});
  Window how{.stride = {m.From(1, 3), m.From(1, 2)}, .dilation = {m.From(1, 2), m.From(1, 3)}};
  for (int i = 0; i < 4; ++i) how.pads.push_back(m.From(0, 3));
  const Tensor y = x.Conv(w, how, groups);
  m.Out(y);
  m.Out((x.Conv(w, how, groups) + m.In(dtype, {out, 1, 1})).Relu().Mean({-2, -1}));
}

// Channels that tiles of matrix instructions hold.
void WideConvolutions(Maker& m) {
  const DType dtype = m.OneOf({kFloat16, kBFloat16, kFloat32});
  const int64_t groups = m.OneOf({1, 1, 2}), in = groups * m.OneOf({8, 16, 17, 24});
  const int64_t out = groups * m.OneOf({16, 32, 33}), side = m.OneOf({7, 8, 9});
  const int64_t window = m.OneOf({1, 3});
  const Tensor x = m.In(dtype, {2, in, side, side});
  const Tensor w = m.In(dtype, {out, in / groups, window, window});
  const Window how{.stride = {m.From(1, 2)}, .dilation = {m.From(1, 2)}, .pads = {window / 2}};
  m.Out(x.Conv(w, how, groups).Silu());
}

void TransposedConvolutions(Maker& m) {
  const DType dtype = m.OneOf({kFloat32, kFloat16, kFloat32});
  const int64_t groups = m.OneOf({1, 2, 3}), in = groups * m.From(1, 3), out = m.From(1, 4);
  const int64_t stride = m.From(1, 3);
  const Window how{.stride = {stride}, .dilation = {m.From(1, 2)}, .pads = {m.From(0, 1)}};
  const Tensor w = m.In(dtype, {in, out, m.From(2, 3), m.From(2, 4)});
  m.Out(m.In(dtype, {2, in, m.From(3, 6), m.From(3, 6)})
            .ConvTranspose(w, how, groups, {m.Below(stride)}));
  const Tensor line = m.In(dtype, {1, 3, m.Size()});
  m.Out(line.Conv(m.In(dtype, {4, 3, 1}), {.stride = {m.From(1, 3)}}));
}

void Pools(Maker& m) {
  const Tensor x = m.In(m.OneOf({kFloat32, kFloat16, kInt8, kInt32}),
                        {2, m.From(1, 3), m.From(5, 17), m.From(5, 9)}, m.Chance(3));
  const Window how{.stride = {m.From(1, 3)},
                   .dilation = {m.From(1, 2)},
                   .pads = {m.From(0, 1)},
                   .ceil_mode = m.Chance(2)};
  const std::vector<int64_t> window{m.From(2, 3), m.From(2, 3)};
  m.Out(x.MaxPool(window, how));
  const auto [values, places] = x.MaxPoolIndices(window, {.stride = {2}});
  m.Out(values);
  m.Out(places);
  m.Out(values.MaxUnpool(places, {x.dim(2), x.dim(3)}));
  const Tensor y = m.In(kFloat32, {1, 3, m.From(6, 11), m.From(6, 11)});
  m.Out(y.AvgPool(window, how, m.Chance(2)));
  m.Out(y.LpPool(window, {.stride = {2}}, 3));
  m.Out(y.Interpolate({m.From(1, 19), m.From(1, 19)},
                      m.OneOf({Interpolation::kLinear, Interpolation::kNearest})));
  m.Out(y.Interpolate({m.From(1, 9), m.From(2, 9)}, Interpolation::kLinear, true));
}

void Products(Maker& m) {
  const DType dtype = m.OneOf({kFloat32, kFloat16, kBFloat16, kFloat64, kInt8, kUInt8, kInt32,
                               kInt64, kBool, kFloat8E4M3, kFloat8E5M2});
  const int64_t rows = m.Size(), depth = m.Size(), columns = m.Size();
  Tensor x = m.Chance(3) ? m.In(dtype, {depth, rows}).Transpose() : m.In(dtype, {rows, depth});
  Tensor y =
      m.Chance(3) ? m.In(dtype, {columns, depth}).Transpose() : m.In(dtype, {depth, columns});
  m.Out(x.MatMul(y));
  if (IsFloat(dtype)) m.Out((x.MatMul(y) + m.In(dtype, {columns})).Relu());
  const int64_t batch = m.From(1, 3);
  m.Out(m.In(dtype, {batch, 1, m.Small(), 17}).MatMul(m.In(dtype, {3, 17, m.Small()})));
  m.Out(m.In(dtype, {depth}).Dot(m.In(dtype, {depth})));
}

// Some rows of queries, or one, as where a text is generated.
void Attentions(Maker& m) {
  const DType dtype = m.OneOf({kFloat32, kFloat16, kBFloat16});
  const int64_t heads = m.OneOf({1, 3, 4, 8, 16}), members = m.OneOf({1, 1, 2, 3});
  const int64_t queries = m.OneOf({1, 1, 2, 16, 17, 33, 64}),
                keys = m.OneOf({1, 7, 33, 64, 65, 129});
  const int64_t channels = m.OneOf({1, 3, 8, 17, 33, 40, 64, 80, 100});
  const Tensor q = m.In(dtype, {heads * members, queries, channels});
  const Tensor k = m.In(dtype, {heads, keys, channels});
  const Tensor v = m.In(dtype, {heads, keys, m.Chance(3) ? m.OneOf({1, 5, 24, 65}) : channels});
  Tensor mask;
  const int64_t kind = m.Below(4);
  if (kind == 1) mask = m.In(kBool, {queries, keys});
  if (kind == 2) mask = m.In(dtype, {heads * members, 1, keys}, true);
  m.Out(q.ScaledDotProductAttention(k, v, mask, kind == 3, {}, members > 1));
}

// What quantized networks have: bytes less their zero points, sums of i32, a scale, and bytes
// again.
void Quantized(Maker& m) {
  const DType bytes = m.OneOf({kInt8, kUInt8});
  const auto less = [&](const Tensor& x, int64_t zero) { return x.Cast(kInt32) - zero; };
  const auto back = [&](const Tensor& sums) {
    const double low = bytes == kInt8 ? -128 : 0;
    return ((sums.Cast(kFloat32) * 0.03125).Round() + 3).Clamp(low, low + 255).Cast(bytes);
  };
  const int64_t rows = m.Size(), depth = m.Size(), columns = m.Size();
  const Tensor x = m.In(bytes, {rows, depth}, true), w = m.In(kInt8, {depth, columns}, true);
  m.Out(back(less(x, 7).MatMul(w.Cast(kInt32))));
  const int64_t groups = m.OneOf({1, 2, 4}), in = groups * m.OneOf({1, 2, 4, 16});
  const Tensor image = m.In(bytes, {1, in, 9, 9}, true);
  const Tensor window = m.In(kInt8, {groups * m.OneOf({1, 8, 9}), in / groups, 3, 3}, true);
  m.Out(back(
      less(image, 5).Conv(window.Cast(kInt32), {.stride = {m.From(1, 2)}, .pads = {1}}, groups)));
  const Tensor weights = m.In(m.OneOf({kInt4, kUInt4, kInt2, kFloat4E2M1}), {32, 2 * m.Small()});
  const Tensor scales = m.In(m.OneOf({kFloat16, kFloat32}), {32, 1});
  m.Out(m.In(kFloat32, {m.OneOf({1, 3, 17}), 32})
            .MatMul(weights.Cast(kFloat32) * scales.Cast(kFloat32)));
}

void Casts(Maker& m) {
  const int64_t n = m.Size();
  for (int i = 0; i < 6; ++i) {
    const Tensor x = m.In(m.Any(), {n, 2}, true);
    m.Out(x.Cast(m.Any()));
  }
  const Tensor bits = m.In(m.Int(), {n, 8}, true);
  m.Out(bits.Bitcast(m.Int()));
  m.Out(m.In(m.OneOf({kFloat32, kFloat64, kFloat16}), {n}, true)
            .Cast(m.OneOf({kInt4, kUInt4, kInt2, kFloat4E2M1, kFloat8E8M0})));
  m.Out(m.In(m.OneOf({kInt4, kUInt4, kUInt2, kFloat4E2M1, kFloat8E8M0}), {n}).Cast(kFloat32));
}

void Integers(Maker& m) {
  const DType dtype = m.Int();
  const Shape shape = m.SomeShape();
  const Tensor x = m.In(dtype, shape, true), y = m.In(dtype, shape, true);
  m.Out(x.FloorDiv(y));
  m.Out(x.FloorMod(y));
  m.Out(x.TruncDiv(y));
  m.Out(x.TruncMod(y));
  m.Out(x << y);
  m.Out(x >> y);
  m.Out(x * y + (x ^ y));
  m.Out(x.Maximum(y).Lt(x & y));
  m.Out(x.Pow(m.In(dtype, shape)));
}

void Elementwise(Maker& m) {
  const DType dtype = m.Chance(4) ? m.OneOf(kEights) : m.Float();
  const Shape shape = m.SomeShape();
  const Tensor x = m.In(dtype, shape, true), y = m.In(dtype, shape, true);
  m.Out(x / y);
  m.Out(x.Maximum(y));
  m.Out(x.Minimum(y));
  m.Out(x.Abs().Sqrt() - y);
  m.Out(x.Sign() * y.Floor() + y.Round());
  m.Out(x.Lt(y));
  m.Out(x.Eq(y).Where(x, y + 1));
  m.Out(x.IsNan());
  m.Out(x.CopySign(y));
}

void Functions(Maker& m) {
  const DType dtype = m.OneOf({kFloat32, kFloat16, kBFloat16, kFloat64});
  const Shape shape = m.SomeShape();
  const Tensor x = m.In(dtype, shape), y = m.In(dtype, shape);
  m.Out(x.Tanh());
  m.Out(x.Erf());
  m.Out(x.Sin() + y.Cos());
  m.Out(x.Sigmoid());
  m.Out(x.Gelu());
  m.Out(x.Abs().Log1p());
  m.Out(x.Expm1());
  m.Out(x.Atan2(y.Abs() + 1));
  m.Out(x.Softplus());
  m.Out((x.Abs() + 0.5).Pow(y));
}

void Movement(Maker& m) {
  const Tensor x = m.In(m.Any(), {m.Size(), m.Small() + 1, 4}, true);
  m.Out(x.Roll({m.From(-3, 5), 1}, {0, 2}).Flip({1}).Permute({2, 0, 1}));
  m.Out(x.Unfold(2, 2, 1).Flatten(1, 2));
  m.Out(x.Pad({0, 0, 1, 1, 2, 1},
              m.OneOf({PadMode::kReflect, PadMode::kCircular, PadMode::kReplicate})));
  m.Out(x.Diagonal(1, 0, 1));
  m.Out(x.Tril(m.From(-1, 1)));
  m.Out(x.Repeat({1, 2, 3}).Stride(2, 5));
  m.Out(x.RepeatInterleave(m.From(1, 3), 1));
  m.Out(Concat(std::array{x, x.Flip({0, 1}), x.Slice(1, 0, 1)}, 1));
  m.Out(x.Pad({m.Below(4), 1, 0, m.Below(3), m.Below(2), 0}));
}

void LinearAlgebra(Maker& m) {
  const int64_t n = m.From(1, 5);
  const Tensor x = m.In(kFloat32, {m.From(1, 3), n, n});
  const Tensor positive = x.MatMul(x.Transpose()) + m.b.Eye(n) * 4;
  m.Out(positive.Cholesky());
  m.Out(positive.Inverse());
  m.Out(positive.Determinant() / 64);
  m.Out(positive.Trace());
  m.Out(m.In(m.Number(), {m.Size()}).Outer(m.In(kFloat32, {m.Small()})));
  m.Out(m.In(kFloat64, {m.Small(), 3}).Cross(m.In(kFloat64, {1, 3})));
}

// Gradients of what is moved, gathered, pooled and multiplied.
void Gradients(Maker& m) {
  const int64_t groups = m.OneOf({1, 2}), in = 2 * groups, out = 3 * groups;
  const Tensor x = m.In(kFloat32, {2, in, m.From(7, 11), m.From(7, 9)});
  const Tensor w = m.In(kFloat32, {out, in / groups, 3, 2});
  const Window how{.stride = {m.From(1, 2)}, .dilation = {m.From(1, 2)}, .pads = {1}};
  const Tensor y = x.Conv(w, how, groups).Relu().Mean({-1, -2});
  const Tensor table = m.In(kFloat32, {m.Size(), out});
  const Tensor rows = table.Gather(m.Indices(kInt64, {2}, 0, table.dim(0) - 1));
  const Tensor loss = (y * rows).Softmax(-1).Square().Sum();
  for (const Tensor& g : telegrad::Gradients(loss, std::array{x, w, table})) m.Out(g);
}

void AttentionGradients(Maker& m) {
  const int64_t heads = m.From(1, 3), length = m.OneOf({3, 17, 33}), channels = m.OneOf({3, 8, 17});
  const DType dtype = m.OneOf({kFloat32, kFloat32, kFloat16});
  const auto input = [&] { return m.In(dtype, {heads, length, channels}); };
  const Tensor q = input(), k = input(), v = input();
  const Tensor y = q.ScaledDotProductAttention(k, v, {}, m.Chance(2));
  const Tensor loss = (y.Cast(kFloat32) * m.In(kFloat32, {length, channels})).Sum();
  for (const Tensor& g : telegrad::Gradients(loss, std::array{q, k, v})) m.Out(g);
}

// Loads of neighbours that differ in their types, from places that no vector is aligned at.
void Unaligned(Maker& m) {
  const int64_t n = m.OneOf({65, 129, 257});
  const Tensor x = m.In(m.Any(), {n + 3}), y = m.In(m.Any(), {3, n});
  const int64_t from = m.Below(4);
  const Tensor a = x.Slice(0, from, from + n).Cast(kFloat32), b = y.Cast(kFloat32);
  m.Out(a + b);
  m.Out((a * b).Cast(m.OneOf({kFloat16, kBFloat16, kInt8, kInt64, kFloat8E5M2})));
  m.Out(x.Slice(0, from, from + n));
  m.Out(b.Max({0}) - a.Flip({0}));
}

struct Kind {
  std::string_view name;
  void (*make)(Maker& m);
};
constexpr Kind kKinds[] = {
    {"gathers", Gathers},
    {"scatters", Scatters},
    {"sets_of_views", SetsOfViews},
    {"sorts", Sorts},
    {"scans", Scans},
    {"reductions", Reductions},
    {"statistics", Statistics},
    {"empty", Empty},
    {"convolutions", Convolutions},
    {"wide_convolutions", WideConvolutions},
    {"transposed_convolutions", TransposedConvolutions},
    {"pools", Pools},
    {"products", Products},
    {"attentions", Attentions},
    {"quantized", Quantized},
    {"casts", Casts},
    {"integers", Integers},
    {"elementwise", Elementwise},
    {"functions", Functions},
    {"movement", Movement},
    {"linear_algebra", LinearAlgebra},
    {"gradients", Gradients},
    {"attention_gradients", AttentionGradients},
    {"unaligned", Unaligned},
};

constexpr auto kNames = [] {
  std::array<std::string_view, std::size(kKinds)> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kKinds[i].name;
  return names;
}();

double UnusualElement(DType dtype, const std::vector<uint8_t>& bytes, int64_t i) {
  const int64_t bits = Info(dtype).bits;
  int64_t raw = 0;
  std::memcpy(&raw, bytes.data() + i * bits / 8, static_cast<size_t>((bits + 7) / 8));
  if (IsPacked(dtype)) raw = raw >> (i * bits % 8) & ((1 << bits) - 1);
  return ScalarAsDouble(dtype, ScalarFromMemory(dtype, raw));
}

std::string DifferenceOf(DType dtype, const std::vector<uint8_t>& want,
                         const std::vector<uint8_t>& got) {
  if (want == got) return "";
  if (want.size() != got.size()) return "another size";
  const int64_t n = static_cast<int64_t>(want.size()) * 8 / Info(dtype).bits;
  double most = 1e-3;  // what is left of larger numbers is no more exact
  for (int64_t i = 0; i < n; ++i) {
    const double x = UnusualElement(dtype, want, i);
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  }
  // An intermediate value that is rounded the other way moves results by steps of its size.
  const double tolerance = std::max(1e-5, std::ldexp(4.0, -Info(dtype).mantissa_bits)) * most;
  for (int64_t i = 0; i < n; ++i) {
    const double x = UnusualElement(dtype, want, i), y = UnusualElement(dtype, got, i);
    if ((std::isnan(x) && std::isnan(y)) || x == y) continue;
    if (IsFloat(dtype) && std::abs(x - y) <= tolerance) continue;
    return StrCat("element ", i, " of ", n, ": ", x, " expected, got ", y);
  }
  return IsFloat(dtype) ? "" : "integers beyond 2^53 differ";
}

}  // namespace

std::span<const std::string_view> UnusualKinds() { return kNames; }

absl::StatusOr<UnusualGraph> MakeUnusualGraph(size_t kind, uint64_t seed) {
  Maker maker(seed * 1009 + kind);
  kKinds[kind].make(maker);
  return maker.Finish();
}

std::string UnusualDifference(const Plan& plan, const Slots& want, const Slots& got) {
  for (size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    const std::string difference = DifferenceOf(slot.dtype, want[i], got[i]);
    if (difference.empty()) continue;
    return StrCat(slot.name, " (", Name(slot.dtype), " ", ToString(slot.shape), "), ", difference);
  }
  return "";
}

}  // namespace telegrad::testing
