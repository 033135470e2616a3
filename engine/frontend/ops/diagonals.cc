// Diagonals. In rows that are one element longer than the matrix is wide, a diagonal is a column:
// [n, n + 1] holds the same elements as n n with one more at each row's end, so that a reshape
// turns the one into the other.
#include <algorithm>
#include <numeric>

#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

constexpr int64_t kLongest = int64_t{1} << 28;  // a matrix with more has too many elements

}  // namespace

Tensor Tensor::Diag(int64_t offset) const {
  if (!valid()) return *this;
  if (rank() == 2) return Diagonal(offset);
  if (rank() != 1 || !dims().is_static()) {
    return builder_->Fail(
        InvalidArgument("diag: ", ToString(dims()), " is not a vector or matrix of fixed size"));
  }
  const int64_t n = shape()[0];
  if (n > kLongest || offset < -kLongest || offset > kLongest) {
    return builder_->Fail(InvalidArgument("diag: a matrix with ", n, " elements on diagonal ",
                                          offset, " is too large"));
  }
  const int64_t above = std::max<int64_t>(offset, 0), below = above - offset;
  const Tensor rows = Reshape({n, 1}).Pad({0, 0, 0, n}).Reshape({n * (n + 1)});
  return rows.Narrow(0, 0, n * n).Reshape({n, n}).Pad({below, above, above, below});
}

Tensor Tensor::Diagonal(int64_t offset, int64_t axis1, int64_t axis2) const {
  if (!valid()) return *this;
  const absl::StatusOr<Axes> both = ResolveAxes("diagonal", {axis1, axis2}, rank());
  if (!both.ok()) return builder_->Fail(both.status());
  const int64_t row_axis = axis1 < 0 ? axis1 + rank() : axis1;
  const int64_t column_axis = axis2 < 0 ? axis2 + rank() : axis2;
  const Dim m = dims()[row_axis], n = dims()[column_axis];
  if (!m.is_static() || !n.is_static() || std::min(m.size(), n.size()) > kLongest) {
    return builder_->Fail(InvalidArgument("diagonal: axes ", axis1, " and ", axis2, " of ",
                                          ToString(dims()),
                                          " must have fixed sizes, one of them up to ", kLongest));
  }
  Axes order;
  for (int64_t i = 0; i < rank(); ++i) {
    if (i != row_axis && i != column_axis) order.push_back(i);
  }
  order.insert(order.end(), {row_axis, column_axis});
  const Tensor x = Permute(order);
  const int64_t row = std::clamp<int64_t>(-std::min<int64_t>(offset, 0), 0, m.size());
  const int64_t column = std::clamp<int64_t>(offset, 0, n.size());
  const int64_t length = std::min(m.size() - row, n.size() - column);
  const Tensor square = x.Narrow(-2, row, length).Narrow(-1, column, length);
  Dims lead = x.dims();
  lead.erase(lead.end() - 2, lead.end());
  const auto with = [&](std::initializer_list<int64_t> last) {
    Dims out = lead;
    out.insert(out.end(), last.begin(), last.end());
    return out;
  };
  std::vector<int64_t> pads(2 * lead.size() + 2, 0);
  pads.back() = length;
  return square.Reshape(with({length * length}))
      .Pad(pads)
      .Reshape(with({length, length + 1}))
      .Narrow(-1, 0, 1)
      .Squeeze(-1);
}

namespace {

// By how much the column of each element of the last two axes lies right of the diagonal.
Tensor RightOf(const Tensor& x, int64_t diagonal) {
  Builder* b = x.builder();
  const Dims dims = x.dims();
  const Tensor row = b->Iota(DType::kInt64, dims[dims.size() - 2]).Unsqueeze(-1);
  return b->Iota(DType::kInt64, dims.back()) - (diagonal == 0 ? row : row + diagonal);
}

}  // namespace

Tensor Tensor::Tril(int64_t diagonal) const {
  if (!valid()) return *this;
  if (rank() < 2) {
    return builder_->Fail(InvalidArgument("tril: ", ToString(dims()), " is no matrix"));
  }
  return RightOf(*this, diagonal).Lt(1).Where(*this, Like(0));
}

Tensor Tensor::Triu(int64_t diagonal) const {
  if (!valid()) return *this;
  if (rank() < 2) {
    return builder_->Fail(InvalidArgument("triu: ", ToString(dims()), " is no matrix"));
  }
  return RightOf(*this, diagonal).Lt(0).Where(Like(0), *this);
}

}  // namespace telegrad
