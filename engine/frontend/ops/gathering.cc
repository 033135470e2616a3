// Reads and writes where tensors of integers say. GATHER and SCATTER know rows of axis 0; every
// other form moves or joins axes so that its elements are such rows, and computes their numbers.
#include <limits>
#include <numeric>

#include "engine/base/status.h"
#include "engine/frontend/ops/positions.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/dim_math.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

absl::Status CheckIndex(std::string_view op, const Tensor& index) {
  if (!index.valid()) return InvalidArgument(op, ": the index is an empty tensor");
  if (IsInt(index.dtype())) return absl::OkStatus();
  return InvalidArgument(op, ": the index has element type ", Name(index.dtype()),
                         ", expected integers");
}

// [0, 1, ... n - 1] times `step`, along `axis` of `rank` axes.
Tensor Ramp(Builder* builder, const Dim& n, const Dim& step, int64_t axis, int64_t rank) {
  Dims shape(static_cast<size_t>(rank), Dim(1));
  shape[static_cast<size_t>(axis)] = n;
  const Tensor ramp = builder->Iota(DType::kInt64, n);
  return (step == Dim(1) ? ramp : ramp * AsTensor(builder, step)).Reshape(shape);
}

// The number of each element that `index` names along an axis of `x`, among all elements of x.
absl::StatusOr<Tensor> ElementsAlong(std::string_view op, const Tensor& x, int64_t axis,
                                     const Tensor& index) {
  TG_RETURN_IF_ERROR(CheckIndex(op, index));
  Builder* builder = x.builder();
  const Dims from = x.dims(), to = index.dims();
  bool fits = from.size() == to.size();
  for (size_t i = 0; fits && i < from.size(); ++i) {
    fits = static_cast<int64_t>(i) == axis || from[i] == to[i] ||
           (from[i].is_static() && to[i].is_static() && to[i].size() <= from[i].size());
  }
  if (!fits) {
    return InvalidArgument(op, ": the index of shape ", ToString(to), " does not fit ",
                           ToString(from), ": of each axis but ", axis,
                           " it must have as many elements, or fewer");
  }
  const Dim n = from[static_cast<size_t>(axis)];
  const Tensor along = FromBeginning(index, n);
  Tensor number;
  Dim step = 1;
  for (size_t i = from.size(); i-- > 0;) {
    Tensor part;
    if (static_cast<int64_t>(i) == axis) {
      part = step == Dim(1) ? along : along * AsTensor(builder, step);
    } else if (to[i] != Dim(1)) {
      part = Ramp(builder, to[i], step, static_cast<int64_t>(i), index.rank());
    }
    if (part.valid()) number = number.valid() ? number + part : part;
    step = MulDims(builder, step, from[i]);
  }
  // Out of range along the axis would be another element.
  const Tensor inside = along.Ge(0).And(along.Lt(AsTensor(builder, n)));
  return inside.Where(number, -1);
}

}  // namespace

Dim ProductOf(Builder* builder, const Dims& sizes) {
  Dim product = 1;
  for (const Dim& size : sizes) product = MulDims(builder, product, size);
  return product;
}

Tensor FromBeginning(const Tensor& index, const Dim& n) {
  const Tensor wide = index.Cast(DType::kInt64);
  if (!wide.valid() || !IsSigned(index.dtype()) || wide.uop().vmin() >= 0) return wide;
  return wide.Lt(0).Where(wide + AsTensor(index.builder(), n), wide);
}

Tensor RowPositions(Builder* builder, std::span<const Tensor> parts, const Dims& sizes) {
  Tensor number, inside;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor part = FromBeginning(parts[i], sizes[i]);
    if (parts.size() == 1) return part;
    const Tensor n = AsTensor(builder, sizes[i]);
    const Tensor fits = part.Ge(0).And(part.Lt(n));
    inside = i == 0 ? fits : inside.And(fits);
    number = i == 0 ? part : number * n + part;
  }
  return inside.Where(number, -1);
}

Tensor Tensor::Gather(const Tensor& index) const {
  return builder_ == nullptr ? Tensor() : builder_->Make(Op::kGather, DType::kVoid, {*this, index});
}

Tensor Tensor::Scatter(const Tensor& index, const Tensor& updates, ScatterKind kind) const {
  if (builder_ == nullptr) return {};
  const int64_t arg[] = {static_cast<int64_t>(kind)};
  return builder_->Make(Op::kScatter, DType::kVoid, {*this, index, updates}, arg);
}

Tensor Tensor::IndexSelect(int64_t axis, const Tensor& index) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("index_select", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const absl::Status good = CheckIndex("index_select", index);
  if (!good.ok()) return builder_->Fail(good);
  const Tensor rows = MoveAxis(*at, 0).Gather(FromBeginning(index, dims()[*at]));
  if (!rows.valid()) return rows;
  Axes order(static_cast<size_t>(rows.rank()));
  std::iota(order.begin(), order.end(), 0);
  const auto first = order.begin();
  std::rotate(first, first + index.rank(), first + index.rank() + *at);
  return rows.Permute(order);
}

Tensor Tensor::TakeAlong(int64_t axis, const Tensor& index) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("take_along", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const absl::StatusOr<Tensor> number = ElementsAlong("take_along", *this, *at, index);
  if (!number.ok()) return builder_->Fail(number.status());
  return Reshape({ProductOf(builder_, dims())}).Gather(*number);
}

Tensor Tensor::PutAlong(int64_t axis, const Tensor& index, const Operand& src,
                        ScatterKind kind) const {
  if (!valid()) return *this;
  const absl::StatusOr<int64_t> at = ResolveAxis("put_along", axis, rank());
  if (!at.ok()) return builder_->Fail(at.status());
  const absl::StatusOr<Tensor> number = ElementsAlong("put_along", *this, *at, index);
  if (!number.ok()) return builder_->Fail(number.status());
  const Dims to = index.dims();
  Tensor updates = src.is_tensor() ? src.tensor() : builder_->Const(dtype(), src);
  if (!updates.valid()) {
    return builder_->Fail(InvalidArgument("put_along: the source is an empty tensor"));
  }
  const Dims given = updates.dims();
  bool fits = updates.rank() <= index.rank();
  for (int64_t i = 0; fits && updates.rank() == index.rank() && i < updates.rank(); ++i) {
    const Dim n = updates.dims()[i];
    if (n == to[i] || n == Dim(1)) continue;
    fits = n.is_static() && to[i].is_static() && to[i].size() <= n.size();
    if (fits) updates = updates.Narrow(i, 0, to[i]);
  }
  if (!fits) {
    return builder_->Fail(InvalidArgument("put_along: the source of shape ", ToString(given),
                                          " does not fit the index of ", ToString(to)));
  }
  updates = updates.Cast(dtype()).Expand(to);
  const Tensor out = Reshape({ProductOf(builder_, dims())})
                         .Scatter(number->Reshape({ProductOf(builder_, to)}),
                                  updates.Reshape({ProductOf(builder_, to)}), kind);
  return out.Reshape(dims());
}

namespace {

// The rows that the last axis of `index` names among the axes of `x` after the first `batch` ones,
// in which both go together.
struct NdRows {
  Tensor table, positions;
};

absl::StatusOr<NdRows> RowsOfLastAxis(std::string_view op, const Tensor& x, const Tensor& index,
                                      int64_t batch) {
  TG_RETURN_IF_ERROR(CheckIndex(op, index));
  Builder* builder = x.builder();
  const Dims from = x.dims();
  Dims shape = index.dims();
  const int64_t last = index.rank() - 1;
  bool fits = last >= batch && batch >= 0 && x.rank() >= batch && shape.back().is_static() &&
              shape.back().size() <= x.rank() - batch;
  for (int64_t i = 0; fits && i < batch; ++i) fits = from[i] == shape[i];
  if (!fits) {
    return InvalidArgument(op, ": the index of shape ", ToString(shape), " does not fit ",
                           ToString(from), " with ", batch,
                           " batch axes: these must be equal, and the last axis a fixed number of",
                           " positions in the other axes");
  }
  const int64_t named = batch + shape.back().size();
  shape.pop_back();
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < batch; ++i) parts.push_back(Ramp(builder, from[i], 1, i, last));
  for (int64_t i = batch; i < named; ++i) {
    parts.push_back(index.Narrow(last, i - batch, 1).Squeeze(last));
  }
  const Dims sizes(from.begin(), from.begin() + named);
  Dims merged(from.begin() + named, from.end());
  merged.insert(merged.begin(), ProductOf(builder, sizes));
  const Tensor positions =
      parts.empty() ? builder->Const(DType::kInt64, 0) : RowPositions(builder, parts, sizes);
  return NdRows{x.Reshape(merged), positions.Expand(shape)};
}

}  // namespace

Tensor Tensor::GatherNd(const Tensor& index, int64_t batch_axes) const {
  if (!valid()) return *this;
  const absl::StatusOr<NdRows> rows = RowsOfLastAxis("gather_nd", *this, index, batch_axes);
  return rows.ok() ? rows->table.Gather(rows->positions) : builder_->Fail(rows.status());
}

Tensor Tensor::ScatterNd(const Tensor& index, const Tensor& updates, ScatterKind kind) const {
  if (!valid()) return *this;
  const absl::StatusOr<NdRows> rows = RowsOfLastAxis("scatter_nd", *this, index, 0);
  if (!rows.ok()) return builder_->Fail(rows.status());
  return rows->table.Scatter(rows->positions, updates.Cast(dtype()), kind).Reshape(dims());
}

// Wide enough for both the labels and the classes: a wrapped number must not match.
Tensor Tensor::OneHot(int64_t classes) const {
  if (!valid()) return *this;
  const absl::Status good = CheckIndex("one_hot", *this);
  if (!good.ok()) return builder_->Fail(good);
  const bool wide = ByteSize(dtype()) == 8 || classes > std::numeric_limits<int32_t>::max();
  const DType type = wide ? DType::kInt64 : DType::kInt32;
  return Cast(type).Unsqueeze(-1).Eq(builder_->Iota(type, classes));
}

}  // namespace telegrad
