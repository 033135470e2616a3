#include "engine/frontend/ops/matrices.h"

#include <algorithm>

#include "engine/base/status.h"
#include "engine/frontend/tensor/promotion.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {

absl::StatusOr<Matrices> MatricesOf(std::string_view op, const Tensor& x, int64_t limit) {
  if (x.rank() < 2) {
    return InvalidArgument(op, ": ", ToString(x.dims()),
                           " is no matrix, expected two axes or more");
  }
  const Dims dims = x.dims();
  const int64_t rows = x.rank() - 2;
  for (int64_t axis : {rows, rows + 1}) {
    if (!dims[axis].is_static()) {
      return InvalidArgument(op, ": axis ", axis, " of ", ToString(dims),
                             " is symbolic, expected matrices of a fixed size");
    }
  }
  if (std::min(dims[rows].size(), dims[rows + 1].size()) > limit) {
    return InvalidArgument(op, ": matrices of ", ToString(dims), " are over the limit of ", limit,
                           " rows or columns, for each of which the graph has steps");
  }
  Matrices out;
  out.before = Dims(dims.begin(), dims.end() - 2);
  out.type = FloatType(x.dtype());
  Axes lead(rows);
  for (int64_t i = 0; i < rows; ++i) lead[i] = i;
  const Tensor batch = x.SizeOf(lead);
  if (!batch.valid()) return x.builder()->status();
  out.all =
      x.Cast(PromoteTypes(out.type, DType::kFloat32)).Reshape({batch, dims[rows], dims[rows + 1]});
  return out;
}

absl::StatusOr<Matrices> SquareMatricesOf(std::string_view op, const Tensor& x, int64_t limit) {
  TG_ASSIGN_OR_RETURN(Matrices out, MatricesOf(op, x, limit));
  if (out.m() == out.n()) return out;
  return InvalidArgument(op, ": the last two axes of ", ToString(x.dims()),
                         " differ, expected square matrices");
}

Tensor Matrices::Back(const Tensor& result) const {
  if (!result.valid()) return result;
  Dims out = before;
  const Dims dims = result.dims();
  out.insert(out.end(), dims.begin() + 1, dims.end());
  return result.Reshape(out).Cast(type);
}

}  // namespace telegrad
