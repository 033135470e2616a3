// Reductions, softmaxes, and positions of the largest and smallest.
#include <algorithm>
#include <limits>

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/ir/scalar.h"

namespace telegrad::onnx {
namespace {

using SoftmaxMethod = Tensor (Tensor::*)(int64_t) const;

// f(x, axis) of one axis. Before opset 13 the axes from `axis` on are one.
template <typename F>
absl::Status AlongSoftmaxAxis(NodeContext& c, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.FloatInput(0));
  const bool single = c.opset() >= 13;
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", single ? -1 : 1));
  if (single) {
    TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("softmax", given, x.rank()));
    return c.Output(f(x, axis));
  }
  int64_t axis = given;
  if (axis != x.rank()) {
    TG_ASSIGN_OR_RETURN(axis, ResolveAxis("softmax", given, x.rank()));
  }
  const Axes all = AllAxes(x.rank());
  const Axes before(all.begin(), all.begin() + axis), behind(all.begin() + axis, all.end());
  const Dims matrix = {Dim(x.SizeOf(before)), Dim(x.SizeOf(behind))};
  return c.Output(f(x.Reshape(matrix), 1).Reshape(x.dims()));
}

absl::Status AnySoftmax(NodeContext& c, SoftmaxMethod method) {
  return AlongSoftmaxAxis(c, [&](const Tensor& x, int64_t axis) { return (x.*method)(axis); });
}

// f(x, axes, keepdim), with the axes as an attribute before opset `since` and an input from then
// on. Without axes all are reduced, or with `noop_with_empty_axes` none. The result has x's type.
template <typename F>
absl::Status Reduce(NodeContext& c, int64_t since, F f) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Axes axes, c.IntsOrInput("axes", 1, since));
  TG_ASSIGN_OR_RETURN(const int64_t keep, c.Int("keepdims", 1));
  TG_ASSIGN_OR_RETURN(const int64_t noop, c.Int("noop_with_empty_axes", 0));
  if (axes.empty() && noop == 0) axes = AllAxes(x.rank());
  return c.Output(f(x, axes, keep != 0).Cast(x.dtype()));
}

// The sum of f(x), in a type wide enough that its rounding does not show.
template <typename F>
Tensor SumOf(const Tensor& x, const Axes& axes, bool keep, F f) {
  const Tensor wide = IsFloat(x.dtype()) ? x.Cast(ComposedType(x.dtype())) : x;
  return f(wide).Sum(axes, keep);
}

// In f64 of integers of 32 bits and more, whose f32 would not be exact.
Tensor ForLogarithm(const Tensor& x) {
  const bool wide = IsInt(x.dtype()) && Info(x.dtype()).bits >= 32;
  return x.Cast(wide ? DType::kFloat64 : ComposedType(x.dtype()));
}

// The shape of a reduction.
Shape Reduced(const Tensor& x, const Axes& axes, bool keep) {
  Shape out;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const bool folded = std::ranges::find(axes, i) != axes.end() ||
                        std::ranges::find(axes, i - x.rank()) != axes.end();
    if (!folded) out.push_back(x.dim(i));
    if (folded && keep) out.push_back(1);
  }
  return out;
}

// The extreme of no elements is the other end of the type.
Tensor Extreme(NodeContext& c, const Tensor& x, const Axes& axes, bool keep, bool largest) {
  if (IsBool(x.dtype())) return largest ? x.Any(axes, keep) : x.All(axes, keep);
  const Shape shape = Reduced(x, axes, keep);
  if (x.size() == 0 && NumElements(shape) != 0) {
    const double infinity = std::numeric_limits<double>::infinity();
    if (IsFloat(x.dtype()))
      return c.builder().Full(x.dtype(), shape, largest ? -infinity : infinity);
    const Tensor zero = c.builder().Full(x.dtype(), shape, 0);
    if (IsUnsigned(x.dtype())) return largest ? zero : zero.BitwiseNot();
    const Tensor low = c.builder()
                           .Full(x.dtype(), shape, 1)
                           .ShiftLeft(static_cast<int64_t>(Info(x.dtype()).bits - 1));
    return largest ? low : low.BitwiseNot();
  }
  return largest ? x.Max(axes, keep) : x.Min(axes, keep);
}

absl::Status Arg(NodeContext& c, Tensor (Tensor::*method)(int64_t, bool) const) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", 0));
  TG_ASSIGN_OR_RETURN(const int64_t keep, c.Int("keepdims", 1));
  TG_ASSIGN_OR_RETURN(const int64_t last, c.Int("select_last_index", 0));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("arg", given, x.rank()));
  if (last != 0) x = x.Flip({axis});
  Tensor at = (x.*method)(axis, keep != 0).Cast(DType::kInt64);
  if (last != 0) at = x.SizeOf({axis}) - 1 - at;
  return c.Output(at);
}

// The parts of a scan along one axis before the sum or product: reversed, shifted by one.
template <typename F>
absl::Status Scanned(NodeContext& c, double neutral, F f) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Axes given, c.Numbers(1));
  TG_ASSIGN_OR_RETURN(const int64_t exclusive, c.Int("exclusive", 0));
  TG_ASSIGN_OR_RETURN(const int64_t reverse, c.Int("reverse", 0));
  if (given.size() != 1) return InvalidArgument("input 1 has ", given.size(), " axes, expected 1");
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("scan", given[0], x.rank()));
  const DType dtype = x.dtype();
  if (reverse != 0) x = x.Flip({axis});
  if (exclusive != 0 && x.dim(axis) > 0) {
    std::vector<int64_t> pairs(static_cast<size_t>(2 * x.rank()), 0);
    pairs[2 * axis] = 1;
    pairs[2 * axis + 1] = -1;
    x = x.Pad(pairs, PadMode::kConstant, neutral);
  }
  x = f(x, axis).Cast(dtype);
  if (reverse != 0) x = x.Flip({axis});
  return c.Output(x);
}

}  // namespace

absl::Status SoftmaxOp(NodeContext& c) { return AnySoftmax(c, &Tensor::Softmax); }
absl::Status LogSoftmaxOp(NodeContext& c) { return AnySoftmax(c, &Tensor::LogSoftmax); }

// 1 at the first of the largest, else 0.
absl::Status HardmaxOp(NodeContext& c) {
  return AlongSoftmaxAxis(c, [&](const Tensor& x, int64_t axis) {
    const Tensor positions =
        AlongAxis(c.builder().Iota(DType::kInt32, x.dims()[axis]), axis, x.rank());
    return positions.Eq(x.ArgMax(axis, true)).Cast(x.dtype());
  });
}

absl::Status ReduceMeanOp(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) { return x.Mean(a, keep); });
}
absl::Status ReduceSumOp(NodeContext& c) {
  return Reduce(c, 13, [](const Tensor& x, const Axes& a, bool keep) { return x.Sum(a, keep); });
}
absl::Status ReduceProdOp(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) { return x.Prod(a, keep); });
}
absl::Status ReduceMaxOp(NodeContext& c) {
  return Reduce(c, 18, [&](const Tensor& x, const Axes& a, bool keep) {
    return Extreme(c, x, a, keep, true);
  });
}
absl::Status ReduceMinOp(NodeContext& c) {
  return Reduce(c, 18, [&](const Tensor& x, const Axes& a, bool keep) {
    return Extreme(c, x, a, keep, false);
  });
}
absl::Status ReduceL1Op(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) {
    return SumOf(x, a, keep, [](const Tensor& t) { return t.Abs(); });
  });
}
absl::Status ReduceL2Op(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) {
    return SumOf(ForLogarithm(x), a, keep, [](const Tensor& t) { return t * t; }).Sqrt();
  });
}
absl::Status ReduceSumSquareOp(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) {
    return SumOf(x, a, keep, [](const Tensor& t) { return t * t; });
  });
}
absl::Status ReduceLogSumOp(NodeContext& c) {
  return Reduce(c, 18, [](const Tensor& x, const Axes& a, bool keep) {
    return ForLogarithm(x).Sum(a, keep).Log();
  });
}
absl::Status ReduceLogSumExpOp(NodeContext& c) {
  return Reduce(c, 18, [&](const Tensor& x, const Axes& a, bool keep) {
    if (a.empty()) return x;
    if (x.size() == 0) return ForLogarithm(x).Sum(a, keep).Log();
    return ForLogarithm(x).LogSumExp(a, keep);
  });
}

absl::Status ArgMaxOp(NodeContext& c) { return Arg(c, &Tensor::ArgMax); }
absl::Status ArgMinOp(NodeContext& c) { return Arg(c, &Tensor::ArgMin); }

namespace {

absl::StatusOr<bool> TopKDecidedByRun(NodeContext& c) {
  if (c.opset() < 10) return false;
  return c.DecidedByRun({1});
}

// All in order, of which the first k are used.
absl::Status TopKOfRun(NodeContext& c, const Tensor& x, int64_t axis, bool largest) {
  TG_ASSIGN_OR_RETURN(const ValueRef value, c.Get(1));
  Builder* b = &c.builder();
  const Dim n = x.dims()[axis];
  Dim k = 0;
  if (value->sizes != nullptr && value->sizes->values.size() == 1) {
    k = MaxDims(b, MinDims(b, value->sizes->values[0], n), 0);
  } else {
    TG_ASSIGN_OR_RETURN(const Tensor number, c.Input(1));
    if (number.size() != 1) return InvalidArgument("input 1 has ", number.size(), " numbers");
    const Tensor wanted = number.Reshape(Shape{}).Cast(DType::kInt64);
    TG_ASSIGN_OR_RETURN(k, c.RunSize(wanted.Minimum(AsTensor(b, n)), n.size()));
  }
  const auto [values, positions] = x.TopK(k.size(), axis, largest);
  TG_RETURN_IF_ERROR(c.Output(values.Narrow(axis, 0, k)));
  return c.Output(positions.Cast(DType::kInt64).Narrow(axis, 0, k));
}

}  // namespace

// `k` is an attribute before opset 10, an input from then on.
absl::Status TopKOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", -1));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("top_k", given, x.rank()));
  TG_ASSIGN_OR_RETURN(const int64_t largest, c.Int("largest", 1));
  c.Ignore("sorted");  // any order will do, a sorted one too
  TG_ASSIGN_OR_RETURN(const bool by_run, TopKDecidedByRun(c));
  if (by_run) return TopKOfRun(c, x, axis, largest != 0);
  int64_t k = 0;
  if (c.opset() < 10) {
    TG_ASSIGN_OR_RETURN(const Attribute* attribute, c.Required("k", AttributeType::kInt));
    k = attribute->i;
  } else {
    TG_ASSIGN_OR_RETURN(const Axes numbers, c.Numbers(1));
    if (numbers.size() != 1) return InvalidArgument("input 1 has ", numbers.size(), " numbers");
    k = numbers[0];
  }
  if (k < 0 || k > x.dim(axis)) {
    return InvalidArgument("k is ", k, " of an axis of ", x.dim(axis), " elements");
  }
  const auto [values, positions] = x.TopK(k, axis, largest != 0);
  TG_RETURN_IF_ERROR(c.Output(values));
  return c.Output(positions.Cast(DType::kInt64));
}

absl::Status CumSumOp(NodeContext& c) {
  return Scanned(c, 0, [](const Tensor& x, int64_t axis) { return x.CumSum(axis); });
}
absl::Status CumProdOp(NodeContext& c) {
  return Scanned(c, 1, [](const Tensor& x, int64_t axis) { return x.CumProd(axis); });
}

}  // namespace telegrad::onnx
