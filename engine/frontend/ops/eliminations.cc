// Cholesky and QR decompositions, inverses and determinants: one column after another.
//
// Every step does the same to the first column and then turns the axes by one, so that the next
// column is the first: all steps are the same kernels on other data, which are compiled once. What
// steps differ in, such as the rows that have been dealt with, is data too.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/frontend/ops/matrices.h"
#include "engine/frontend/ops/reduce.h"

namespace telegrad {
namespace {

constexpr int64_t kMostEliminationColumns = 128;

Tensor FirstColumn(const Tensor& x) { return x.Slice(2, 0, 1); }
Tensor FirstRow(const Tensor& x) { return x.Slice(1, 0, 1); }
Tensor RowNumber(const Tensor& x) {
  return x.builder()->Iota(DType::kInt32, x.dim(1)).Reshape({x.dim(1), 1});
}
Tensor ColumnNumber(const Tensor& x) { return x.builder()->Iota(DType::kInt32, x.dim(2)); }

// Gauss and Jordan's elimination of n columns of [batch, n, w], w >= n, with the largest element of
// a column as pivot, `of_zero` in place of a pivot of 0. Rows stay where they are.
struct Eliminated {
  Tensor rows;         // columns n.. and then those that were eliminated
  Tensor step;         // [batch, n, 1]: the step of which a row was the pivot
  Tensor determinant;  // [batch, 1, 1]
};

Eliminated Eliminate(Tensor x, double of_zero) {
  Builder* b = x.builder();
  const Dim batch = x.dims()[0];
  const int64_t n = x.dim(1);
  const Tensor number = RowNumber(x);
  Tensor free = b->Full(DType::kBool, {batch, n, 1}, true);
  Tensor step = b->Zeros({batch, n, 1}, DType::kInt32);
  Tensor determinant = b->Ones({batch, 1, 1}, x.dtype());
  for (int64_t i = 0; i < n; ++i) {
    const Tensor column = FirstColumn(x);
    const Tensor pivot_row = free.Where(column.Detach().Abs(), -1.0).ArgMax(1, true).Contiguous();
    const Tensor hit = number.Eq(pivot_row);
    const Tensor row = hit.Where(x, 0.0).Sum({1}, true), pivot = FirstColumn(row);
    const Tensor over = row / pivot.Eq(0).Where(of_zero, pivot);
    // The pivot's row goes past the free ones above it.
    const Tensor passed = free.And(number.Lt(pivot_row)).Sum({1}, true);
    determinant = (determinant * passed.And(1).Eq(0).Where(pivot, -pivot)).Contiguous();
    step = hit.Where(free.LogicalNot().Sum({1}, true), step).Contiguous();
    x = hit.Where(over, x - column * over).Roll({-1}, {2}).Contiguous();
    free = free.And(hit.LogicalNot()).Contiguous();
  }
  return {x, step, determinant};
}

}  // namespace

Tensor Tensor::Inverse() const {
  if (!valid()) return *this;
  const absl::StatusOr<Matrices> x = SquareMatricesOf("inverse", *this, kMostEliminationColumns);
  if (!x.ok()) return builder_->Fail(x.status());
  const int64_t n = x->n();
  if (n == 0) return x->Back(x->all);
  const Tensor unit = RowNumber(x->all).Eq(ColumnNumber(x->all)).Cast(x->all.dtype());
  const Tensor both[] = {x->all, unit.Expand(x->all.dims())};
  const Eliminated out = Eliminate(Concat(both, 2), 0);  // infinite where singular
  // Row k of the inverse is the row that was the pivot of step k.
  const Tensor inverse = out.rows.Slice(2, 0, n).Unsqueeze(1);
  const Tensor place =
      out.step.Unsqueeze(1).Eq(builder_->Iota(DType::kInt32, n).Reshape({n, 1, 1}));
  return x->Back(place.Where(inverse, 0.0).Sum({2}));
}

Tensor Tensor::Determinant() const {
  if (!valid()) return *this;
  const absl::StatusOr<Matrices> x =
      SquareMatricesOf("determinant", *this, kMostEliminationColumns);
  if (!x.ok()) return builder_->Fail(x.status());
  return x->Back(Eliminate(x->all, 1).determinant.Reshape({x->all.dims()[0]}));
}

// A = L L^T. L takes the place of the columns that have been dealt with; there a step changes
// nothing, because its own column of L is 0 in their rows.
Tensor Tensor::Cholesky() const {
  if (!valid()) return *this;
  const absl::StatusOr<Matrices> matrices =
      SquareMatricesOf("cholesky", *this, kMostEliminationColumns);
  if (!matrices.ok()) return builder_->Fail(matrices.status());
  Tensor x = matrices->all;
  const int64_t n = matrices->n();
  const Tensor first_row = RowNumber(x).Eq(0), first_column = ColumnNumber(x).Eq(0);
  Tensor active = builder_->Full(DType::kBool, {n, 1}, true);
  for (int64_t i = 0; i < n; ++i) {
    const Tensor column = FirstColumn(x), root = FirstRow(column).Sqrt();
    const Tensor l = active.Where(first_row.Where(root, column / root), 0.0);
    const Tensor next = first_column.Where(l, x - l * l.Transpose());
    x = next.Roll({-1, -1}, {1, 2}).Contiguous();
    active = active.And(first_row.LogicalNot()).Roll({-1}, {0}).Contiguous();
  }
  return matrices->Back(ColumnNumber(x).Le(RowNumber(x)).Where(x, 0.0));
}

// By Householder's reflections I - t v v^T. A = H_0 H_1 ... R, so Q is what the reflections in
// reverse order make of the unit matrix.
std::pair<Tensor, Tensor> Tensor::Qr() const {
  if (!valid()) return {*this, *this};
  const absl::StatusOr<Matrices> matrices = MatricesOf("qr", *this, kMostEliminationColumns);
  if (!matrices.ok()) {
    const Tensor failed = builder_->Fail(matrices.status());
    return {failed, failed};
  }
  const int64_t m = matrices->m(), n = matrices->n(), k = std::min(m, n);
  Tensor r = matrices->all;
  const Dim batch = r.dims()[0];
  const Tensor first = RowNumber(r).Eq(0);
  Tensor active = builder_->Full(DType::kBool, {m, 1}, true);
  struct Reflection {
    Tensor v, t;
    Tensor Of(const Tensor& x) const { return x - v * ((v * x).Sum({1}, true) * t); }
  };
  std::vector<Reflection> reflections;
  // A single element needs none.
  for (int64_t i = 0; i < std::min(m - 1, n); ++i) {
    const Tensor x = active.Where(FirstColumn(r), 0.0), x0 = FirstRow(x);
    const Tensor size = SafeRoot((x * x).Sum({1}, true));
    const Tensor v = first.Where(x0 + x0.Lt(0).Where(-size, size), x).Contiguous();
    const Tensor square = (v * v).Sum({1}, true), none = square.Eq(0);
    reflections.push_back({v, none.Where(0.0, 2.0 / none.Where(1.0, square)).Contiguous()});
    r = reflections.back().Of(r).Roll({-1, -1}, {1, 2}).Contiguous();
    active = active.And(first.LogicalNot()).Roll({-1}, {0}).Contiguous();
  }
  const auto turns = static_cast<int64_t>(reflections.size());
  r = r.Roll({turns, turns}, {1, 2}).Slice(1, 0, k);
  r = RowNumber(r).Le(ColumnNumber(r)).Where(r, 0.0);
  const Tensor unit =
      builder_->Iota(DType::kInt32, m).Unsqueeze(1).Eq(builder_->Iota(DType::kInt32, k));
  Tensor q = unit.Cast(r.dtype()).Roll({-turns}, {0}).Expand({batch, m, k});
  for (size_t i = reflections.size(); i-- > 0;) {
    q = reflections[i].Of(q.Roll({1}, {1})).Contiguous();
  }
  return {matrices->Back(q), matrices->Back(r)};
}

}  // namespace telegrad
