// The singular value decomposition by one-sided Jacobi rotations (Hestenes 1958): pairs of columns
// of A are rotated until all are orthogonal to each other; their lengths are then the singular
// values, they themselves A V = U S. The same rotations of the unit matrix give V, which is carried
// below A. A round rotates all columns in n / 2 pairs; from round to round one column stays and the
// others move on by a place, as in a tournament, so that after n - 1 rounds, a sweep, each two have
// met. Sweeps converge quadratically. The rounds are a LOOP, whose body is compiled once.
#include <algorithm>
#include <limits>
#include <tuple>

#include "engine/base/status.h"
#include "engine/frontend/ops/matrices.h"
#include "engine/frontend/ops/reduce.h"

namespace telegrad {
namespace {

constexpr int64_t kMostSvdColumns = 64;
// Enough for kMostSvdColumns columns.
int64_t SweepsOf(DType type) { return type == DType::kFloat64 ? 11 : 9; }

// What rotates columns a and b of A so that they become orthogonal: cosine and sine of the smaller
// of the two angles.
struct Rotation {
  Tensor cosine, sine;
};
Rotation RotationOf(const Tensor& a, const Tensor& b) {
  const auto product = [](const Tensor& x, const Tensor& y) { return (x * y).Sum({1}, true); };
  const Tensor twice = 2 * product(a, b), none = twice.Eq(0);
  const Tensor ratio = (product(b, b) - product(a, a)) / none.Where(1.0, twice);
  const Tensor size = 1 / (ratio.Abs() + (ratio * ratio + 1).Sqrt());
  const Tensor tangent = none.Where(0.0, ratio.Lt(0).Where(-size, size));
  const Tensor cosine = 1 / (tangent * tangent + 1).Sqrt();
  return {cosine, tangent * cosine};
}

// One round of [batch, m + n, 2, n / 2], whose first m rows are A's.
Tensor Round(const Tensor& x, int64_t m) {
  const int64_t half = x.dim(3);
  const Tensor a = x.Slice(2, 0, 1), b = x.Slice(2, 1, 2);
  auto [cosine, sine] = RotationOf(a.Slice(1, 0, m), b.Slice(1, 0, m));
  cosine = cosine.Contiguous();
  sine = sine.Contiguous();
  const Tensor top = a * cosine - b * sine, bottom = a * sine + b * cosine;
  const auto column = [](const Tensor& t, int64_t from, int64_t to) {
    return t.Slice(3, from, to);
  };
  if (half == 1) {
    const Tensor parts[] = {top, bottom};
    return Concat(parts, 2);
  }
  const Tensor moved_top[] = {column(top, 0, 1), column(bottom, 0, 1), column(top, 1, half - 1)};
  const Tensor moved_bottom[] = {column(bottom, 1, half), column(top, half - 1, half)};
  const Tensor rows[] = {Concat(moved_top, 3), Concat(moved_bottom, 3)};
  return Concat(rows, 2);
}

// `rounds` of them.
Tensor Rounds(const Tensor& x, int64_t m, int64_t rounds) {
  Builder* b = x.builder();
  std::vector<int64_t> words = {1, 0};  // argument 1, after the number of the iteration
  words.insert(words.end(), x.shape().begin(), x.shape().end());
  const Tensor carried = b->Make(Op::kArg, x.dtype(), {}, words);
  const Tensor body = b->Make(Op::kTuple, DType::kVoid, {Round(carried, m).Contiguous()});
  const Tensor loop =
      b->Make(Op::kLoop, DType::kVoid, {body, b->Const(DType::kInt64, Operand(rounds)), x});
  const int64_t first[] = {0};
  return b->Make(Op::kGetTuple, DType::kVoid, {loop}, first);
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> Tensor::Svd() const {
  if (!valid()) return {*this, *this, *this};
  const auto fail = [&](const absl::Status& status) {
    const Tensor failed = builder_->Fail(status);
    return std::tuple(failed, failed, failed);
  };
  const absl::StatusOr<Matrices> matrices = MatricesOf("svd", *this, kMostSvdColumns);
  if (!matrices.ok()) return fail(matrices.status());
  if (!dims().is_static()) {
    return fail(InvalidArgument("svd: ", ToString(dims()), " has symbolic axes"));
  }
  const bool wide = matrices->m() < matrices->n();
  const Tensor a = wide ? matrices->all.Transpose() : matrices->all;
  const int64_t batch = a.dim(0), m = a.dim(1), n = a.dim(2), even = n + n % 2;
  const Tensor number = builder_->Iota(DType::kInt32, even);
  const Tensor unit = number.Unsqueeze(1).Eq(number).Cast(a.dtype()).Expand({batch, even, even});
  const Tensor parts[] = {a.Pad({0, 0, 0, 0, 0, even - n}), unit};
  Tensor x = Concat(parts, 1);
  if (n > 1 && a.size() != 0) {
    x = Rounds(x.Reshape({batch, m + even, 2, even / 2}), m, SweepsOf(a.dtype()) * (even - 1))
            .Reshape({batch, m + even, even});
  }
  const Tensor us = x.Slice(1, 0, m), v = x.Slice(1, m, m + n);
  const Tensor size = SafeRoot((us * us).Sum({1}));  // [batch, even]
  // The column that made the number even is the one whose V is outside of A's.
  const Tensor real = n == even ? size : (v * v).Sum({1}).Eq(0).Where(-1.0, size);
  const Tensor order = real.TopK(n, 1).second;
  const auto ordered = [&](const Tensor& t) {
    return t.TakeAlong(2, order.Unsqueeze(1).Expand({batch, t.dim(1), n}));
  };
  const Tensor s = size.TakeAlong(1, order), inverse = s.Eq(0).Where(0.0, 1 / s);
  const Tensor u = ordered(us) * inverse.Unsqueeze(1), right = ordered(v);
  return {matrices->Back(wide ? right : u), matrices->Back(s),
          matrices->Back((wide ? u : right).Transpose())};
}

}  // namespace telegrad
