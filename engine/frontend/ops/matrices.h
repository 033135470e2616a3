// The matrices that the last two axes of a tensor are, as one batch of floats.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {

struct Matrices {
  Tensor all;   // [batch, m, n], in f32 at least
  Dims before;  // the axes that became the batch
  DType type;   // of results

  int64_t m() const { return all.dim(1); }
  int64_t n() const { return all.dim(2); }
  // A result [batch, ...] with the axes before it again.
  Tensor Back(const Tensor& result) const;
};

// Eliminations take a few kernels for each column, of which there may be `limit`.
absl::StatusOr<Matrices> MatricesOf(std::string_view op, const Tensor& x, int64_t limit);
absl::StatusOr<Matrices> SquareMatricesOf(std::string_view op, const Tensor& x, int64_t limit);

}  // namespace telegrad
