// One axis of a tensor as the rows of a matrix, which is what orders work on, or where it is, which
// is what scans do.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {

// The axis comes last and the others before it become one. Of a symbolic axis the rows are as long
// as its bound, filled with zeros.
struct Rows {
  Tensor matrix;  // [rows, n]
  Dims moved;     // the dims with the axis at the end
  int64_t axis = 0;

  int64_t n() const { return matrix.dim(1); }
  // A matrix [rows, k] as the axis again, of `size` elements.
  Tensor Back(const Tensor& rows, const Dim& size) const;
  Tensor Back(const Tensor& rows) const { return Back(rows, moved.back()); }
};

// The axes before it become one, and so do those after it. Of a symbolic axis the cube has the
// bound, filled with zeros.
struct Middle {
  Tensor cube;  // [before, n, after]
  Dims dims;
  int64_t axis = 0;

  // A cube of that shape as the tensor again.
  Tensor Back(const Tensor& cube) const;
};

// An axis may not be longer than what positions of i32 can say.
absl::StatusOr<Middle> MiddleOf(std::string_view op, const Tensor& x, int64_t axis);
absl::StatusOr<Rows> RowsOf(std::string_view op, const Tensor& x, int64_t axis);

}  // namespace telegrad
