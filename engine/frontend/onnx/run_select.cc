// NonZero, Compress and Unique when the model runs. A scan of a mask numbers the elements that
// hold, and SCATTER sends their positions to these numbers.
#include "engine/frontend/onnx/run_select.h"

#include "engine/frontend/onnx/common.h"
#include "engine/frontend/tensor/dim_math.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxKeys = 64;  // columns by which the slices of Unique are sorted

// The positions of a vector's elements that hold.
absl::StatusOr<Tensor> Positions(NodeContext& c, const Tensor& mask) {
  TG_ASSIGN_OR_RETURN(const Dim count, RunCount(c, mask));
  return mask.Nonzero(mask.size(), 0).Squeeze(1).Narrow(0, 0, count);
}

// The slices of Unique as rows of `keys`, each key a vector.
struct KeyedSlices {
  Tensor moved;  // the slices' axis first
  std::vector<Tensor> keys;
  int64_t axis = 0;
};

absl::StatusOr<KeyedSlices> ReadSlices(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  if (!c.HasAttribute("axis")) {
    const Tensor flat = x.Reshape(Dims{Dim(x.SizeOf(AllAxes(x.rank())))});
    return KeyedSlices{flat, {flat}, 0};
  }
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", 0));
  KeyedSlices out;
  TG_ASSIGN_OR_RETURN(out.axis, ResolveAxis("unique", given, x.rank()));
  out.moved = x.MoveAxis(out.axis, 0);
  Axes others = AllAxes(x.rank());
  others.erase(others.begin());
  const Dim inner(out.moved.SizeOf(others));
  if (!inner.is_static() || inner.size() > kMaxKeys) {
    return Unimplemented("slices of more than ", kMaxKeys, " elements");
  }
  const Tensor matrix = out.moved.Reshape({out.moved.dims()[0], inner});
  for (int64_t i = 0; i < inner.size(); ++i) {
    out.keys.push_back(matrix.Slice(1, i, i + 1).Squeeze(1));
  }
  return out;
}

// Stable, by the last key first, so that the first one decides.
Tensor SortedOrder(Builder& b, const std::vector<Tensor>& keys, const Dim& n) {
  Tensor order = b.Iota(DType::kInt64, n);
  for (size_t i = keys.size(); i-- > 0;) {
    order = order.Gather(keys[i].Gather(order).ArgSort(0).Cast(DType::kInt64));
  }
  return order;
}

}  // namespace

absl::StatusOr<Dim> RunCount(NodeContext& c, const Tensor& mask) {
  return c.RunSize(mask.CountNonzero(), mask.size());
}

absl::Status NonZeroOfRun(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(0));
  if (x.rank() == 0) x = x.Reshape({1});
  const Tensor mask = IsBool(x.dtype()) ? x : Readable(x).Ne(0);
  TG_ASSIGN_OR_RETURN(const Dim count, RunCount(c, mask));
  return c.Output(mask.Nonzero(mask.size(), 0).Permute({1, 0}).Narrow(1, 0, count));
}

// A condition shorter than the axis takes nothing behind it; one that is longer says nothing more.
absl::Status CompressOfRun(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(Tensor condition, c.Input(1));
  int64_t axis = 0;
  if (c.HasAttribute("axis")) {
    TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", 0));
    TG_ASSIGN_OR_RETURN(axis, ResolveAxis("compress", given, x.rank()));
  } else {
    x = x.Reshape(Dims{Dim(x.SizeOf(AllAxes(x.rank())))});
  }
  if (!IsBool(condition.dtype()) || condition.rank() != 1) {
    return InvalidArgument("the condition is not a list of bools");
  }
  const Dim n = x.dims()[axis], m = condition.dims()[0];
  if (m != n) {
    const Tensor inside = c.builder().Iota(DType::kInt64, m).Lt(AsTensor(&c.builder(), n));
    condition = condition.And(inside);
  }
  TG_ASSIGN_OR_RETURN(const Tensor taken, Positions(c, condition));
  return c.Output(x.IndexSelect(axis, taken));
}

// In the order of the slices, those that are the same are side by side: where one differs from the
// one before it a group begins, and a scan numbers the groups.
absl::Status UniqueOfRun(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const KeyedSlices s, ReadSlices(c));
  TG_ASSIGN_OR_RETURN(const int64_t sorted, c.Int("sorted", 1));
  Builder& b = c.builder();
  const Dim n = s.moved.dims()[0];
  const Tensor order = SortedOrder(b, s.keys, n).Contiguous();
  const Tensor at = b.Iota(DType::kInt64, n);
  Tensor begins = at.Eq(0);
  for (const Tensor& key : s.keys) {
    const Tensor mine = key.Gather(order), before = key.Gather(order.Gather((at - 1).Maximum(0)));
    begins = begins.Or(mine.Ne(before));
  }
  const Tensor group = begins.Cast(DType::kInt64).CumSum(0) - 1;
  TG_ASSIGN_OR_RETURN(const Tensor starts, Positions(c, begins));
  TG_ASSIGN_OR_RETURN(const Dim count, RunCount(c, begins));
  Tensor first = order.Gather(starts);
  Tensor inverse = b.Zeros({n}, DType::kInt64).Scatter(order, group, ScatterKind::kSet);
  Tensor counts = b.Zeros({n}, DType::kInt64)
                      .Scatter(group, at.OnesLike(), ScatterKind::kAdd)
                      .Narrow(0, 0, count);
  if (sorted == 0) {  // in the order of their first slices, which a scan numbers
    const Tensor begun = b.Zeros({n}, DType::kInt32)
                             .Scatter(first, b.Full(DType::kInt32, {count}, 1), ScatterKind::kSet)
                             .CumSum(0);
    const Tensor place = (begun.Gather(first).Cast(DType::kInt64) - 1).Contiguous();
    const auto moved = [&](const Tensor& t) {
      return b.Zeros({count}, DType::kInt64).Scatter(place, t, ScatterKind::kSet);
    };
    first = moved(first);
    counts = moved(counts);
    inverse = place.Gather(inverse);
  }
  TG_RETURN_IF_ERROR(c.Output(s.moved.Gather(first).MoveAxis(0, s.axis)));
  TG_RETURN_IF_ERROR(c.Output(first));
  TG_RETURN_IF_ERROR(c.Output(inverse));
  return c.Output(counts);
}

}  // namespace telegrad::onnx
