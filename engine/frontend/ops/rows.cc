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

}  // namespace

absl::StatusOr<Rows> RowsOf(std::string_view op, const Tensor& x, int64_t axis) {
  TG_ASSIGN_OR_RETURN(axis, ResolveAxis(op, axis, x.rank()));
  const int64_t n = x.dim(axis);
  if (n > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument(op, ": axis ", axis, " of ", ToString(x.dims()), " has ", n,
                           " elements, the limit is 2^31 - 1");
  }
  const Tensor last = Exchanged(x, axis);
  Rows out{{}, last.dims(), axis};
  Axes others(x.rank() - 1);
  for (size_t i = 0; i < others.size(); ++i) others[i] = static_cast<int64_t>(i);
  const Tensor count = last.SizeOf(others);
  if (!count.valid()) return x.builder()->status();
  out.matrix = last.Reshape({count, out.moved.back()});
  if (!out.moved.back().is_static()) {
    const Dim words[] = {0, count, 0, n};
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
