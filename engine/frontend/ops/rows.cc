#include "engine/frontend/ops/rows.h"

#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

// The axis and the last one exchanged.
Tensor Exchanged(const Tensor& x, int64_t axis) {
  return axis + 1 == x.rank() ? x : x.Transpose(axis, -1);
}

absl::Status CheckLength(std::string_view op, const Tensor& x, int64_t axis) {
  const int64_t n = x.dim(axis);
  if (n <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
  return InvalidArgument(op, ": axis ", axis, " of ", ToString(x.dims()), " has ", n,
                         " elements, the limit is 2^31 - 1");
}

// How many there are along axes [begin, end) together.
Tensor SizeBetween(const Tensor& x, int64_t begin, int64_t end) {
  Axes axes;
  for (int64_t i = begin; i < end; ++i) axes.push_back(i);
  return x.SizeOf(axes);
}

}  // namespace

absl::StatusOr<Middle> MiddleOf(std::string_view op, const Tensor& x, int64_t axis) {
  TG_ASSIGN_OR_RETURN(axis, ResolveAxis(op, axis, x.rank()));
  TG_RETURN_IF_ERROR(CheckLength(op, x, axis));
  const Tensor before = SizeBetween(x, 0, axis), after = SizeBetween(x, axis + 1, x.rank());
  if (!before.valid() || !after.valid()) return x.builder()->status();
  const Dim n = x.dims()[static_cast<size_t>(axis)];
  Middle out{x.Reshape({before, n, after}), x.dims(), axis};
  if (!n.is_static()) {
    const Dim words[] = {0, before, 0, x.dim(axis), 0, after};
    out.cube = x.builder()->MakeSized(Op::kPad, DType::kVoid, {out.cube}, words);
  }
  return out;
}

Tensor Middle::Back(const Tensor& cube) const {
  return cube.Narrow(1, 0, dims[static_cast<size_t>(axis)]).Reshape(dims);
}

absl::StatusOr<Rows> RowsOf(std::string_view op, const Tensor& x, int64_t axis) {
  TG_ASSIGN_OR_RETURN(axis, ResolveAxis(op, axis, x.rank()));
  TG_RETURN_IF_ERROR(CheckLength(op, x, axis));
  const Tensor last = Exchanged(x, axis);
  Rows out{{}, last.dims(), axis};
  const Tensor count = SizeBetween(last, 0, last.rank() - 1);
  if (!count.valid()) return x.builder()->status();
  out.matrix = last.Reshape({count, out.moved.back()});
  if (!out.moved.back().is_static()) {
    const Dim words[] = {0, count, 0, x.dim(axis)};
    out.matrix = x.builder()->MakeSized(Op::kPad, DType::kVoid, {out.matrix}, words);
  }
  return out;
}

Tensor Rows::Back(const Tensor& rows, const Dim& size) const {
  Dims out = moved;
  out.back() = size;
  return Exchanged(rows.Narrow(1, 0, size).Reshape(out), axis);
}

}  // namespace telegrad
