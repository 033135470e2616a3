// Operators that read or write elements where an index says, along one axis or in rows.
#include <algorithm>

#include "engine/frontend/onnx/attention.h"
#include "engine/frontend/onnx/common.h"
#include "engine/frontend/onnx/operators.h"
#include "engine/frontend/ops/positions.h"

namespace telegrad::onnx {
namespace {

// How written elements combine with those that are there.
absl::StatusOr<ScatterKind> ReadReduction(NodeContext& c) {
  constexpr struct {
    std::string_view name;
    ScatterKind kind;
  } kReductions[] = {{"none", ScatterKind::kSet},
                     {"add", ScatterKind::kAdd},
                     {"mul", ScatterKind::kMul},
                     {"min", ScatterKind::kMin},
                     {"max", ScatterKind::kMax}};
  TG_ASSIGN_OR_RETURN(const std::string_view reduction, c.String("reduction", "none"));
  const auto* row = std::ranges::find(kReductions, reduction, [](const auto& r) { return r.name; });
  if (row == std::end(kReductions)) {
    return InvalidArgument("'reduction' is '", reduction, "', expected none, add, mul, min or max");
  }
  return row->kind;
}

}  // namespace

Tensor WriteCache(const Tensor& cache, const Tensor& update, const Tensor& first, int64_t axis,
                  bool circular) {
  const int64_t rank = cache.rank();
  Tensor at = AlongAxis(cache.builder()->Iota(DType::kInt64, update.dim(axis)), axis, rank);
  if (first.valid()) at = at + AlongAxis(first.Cast(DType::kInt64), 0, rank);
  if (circular) at = at.FloorMod(cache.dim(axis));
  const Shape shape = ToShape(update.shape());
  return cache.PutAlong(axis, at.Expand(shape), update);
}

// An index out of range, an error in ONNX, gives 0.
absl::Status GatherOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", 0));
  return c.Output(x.IndexSelect(axis, index));
}

absl::Status GatherElementsOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", 0));
  return c.Output(x.TakeAlong(axis, index));
}

absl::Status GatherNdOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t batch, c.Int("batch_dims", 0));
  return c.Output(x.GatherNd(index, batch));
}

// An index out of range, an error in ONNX, is skipped.
absl::Status ScatterElementsOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor updates, c.Input(2));
  TG_ASSIGN_OR_RETURN(const int64_t axis, c.Int("axis", 0));
  TG_ASSIGN_OR_RETURN(const ScatterKind kind, ReadReduction(c));
  return c.Output(x.PutAlong(axis, index, updates, kind));
}

absl::Status ScatterNdOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor index, c.Input(1));
  TG_ASSIGN_OR_RETURN(const Tensor updates, c.Input(2));
  TG_ASSIGN_OR_RETURN(const ScatterKind kind, ReadReduction(c));
  return c.Output(x.ScatterNd(index, updates, kind));
}

// `update` written into a cache [batch, ...] along an axis, from the place on that input 2 has for
// each example; in circular mode what leaves the end goes on at the beginning.
absl::Status TensorScatterOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor cache, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor update, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t given, c.Int("axis", -2));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("tensor_scatter", given, cache.rank()));
  TG_ASSIGN_OR_RETURN(const std::string_view mode, c.String("mode", "linear"));
  if (mode != "linear" && mode != "circular") return InvalidArgument("'mode' is '", mode, "'");
  if (axis == 0 || update.rank() != cache.rank() || update.dim(axis) > cache.dim(axis)) {
    return InvalidArgument("an update of shape ", ToString(update.shape()), " along axis ", axis,
                           " of a cache of shape ", ToString(cache.shape()));
  }
  Tensor first;
  if (c.HasInput(2)) {
    TG_ASSIGN_OR_RETURN(first, c.Input(2));
    if (first.rank() != 1 || first.dim(0) != cache.dim(0)) {
      return InvalidArgument("the write indices have shape ", ToString(first.shape()));
    }
  }
  return c.Output(WriteCache(cache, update, first, axis, mode == "circular"));
}

// Input 2 holds the values of false and true. A negative position counts from the end.
absl::Status OneHotOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor given, c.Input(0));
  TG_ASSIGN_OR_RETURN(const double number, c.Number(1));
  TG_ASSIGN_OR_RETURN(const Tensor values, c.Input(2));
  TG_ASSIGN_OR_RETURN(const int64_t attribute, c.Int("axis", -1));
  TG_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis("one_hot", attribute, given.rank() + 1));
  if (!(number >= 1 && number < 1e9) || values.rank() != 1 || values.dim(0) != 2) {
    return InvalidArgument("a depth of ", number, " with values of shape ",
                           ToString(values.shape()), ", expected two values");
  }
  const auto depth = static_cast<int64_t>(number);
  Tensor position = given.Cast(DType::kInt64);
  position = position.Lt(0).Where(position + depth, position).Unsqueeze(axis);
  const Tensor classes = AlongAxis(c.builder().Iota(DType::kInt64, depth), axis, given.rank() + 1);
  const Tensor off = values.Slice(0, 0, 1).Reshape(Shape{}),
               on = values.Slice(0, 1, 2).Reshape(Shape{});
  return c.Output(classes.Eq(position).Where(on, off));
}

// The first elements of each sequence in reverse order, as many as it has; the others stay.
absl::Status ReverseSequenceOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const Tensor x, c.Input(0));
  TG_ASSIGN_OR_RETURN(const Tensor lengths, c.Input(1));
  TG_ASSIGN_OR_RETURN(const int64_t batch, c.Int("batch_axis", 1));
  TG_ASSIGN_OR_RETURN(const int64_t time, c.Int("time_axis", 0));
  if (batch < 0 || time < 0 || batch > 1 || time > 1 || batch == time || x.rank() < 2 ||
      lengths.size() != x.dim(batch)) {
    return InvalidArgument("batch axis ", batch, " and time axis ", time, " of shape ",
                           ToString(x.shape()), " with ", lengths.size(), " lengths");
  }
  const Tensor t = AlongAxis(c.builder().Iota(DType::kInt64, x.dim(time)), time, 2);
  const Tensor n = AlongAxis(lengths.Cast(DType::kInt64).Flatten(), batch, 2);
  const Tensor row = AlongAxis(c.builder().Iota(DType::kInt64, x.dim(batch)), batch, 2);
  // Whole rows are read, whose elements are neighbours.
  Tensor parts[] = {row, row};
  parts[time] = t.Lt(n).Where(n - 1 - t, t);
  const Dims sizes = {x.dim(0), x.dim(1)};
  return c.Output(x.Flatten(0, 1).Gather(RowPositions(&c.builder(), parts, sizes)));
}

}  // namespace telegrad::onnx
