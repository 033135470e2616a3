// Stable orders. What is sorted are integers of 64 bits, an element's place in the order of its
// type above its position: they are all different, so that any sort of them is stable, and the
// sorted ones say which elements they were. Types of 64 bits are sorted by their lower half first.
//
// A row of up to kCounted elements is sorted by counting: an element's place is the number of those
// below it. Longer rows are cut into runs that are sorted so, and pairs of runs are merged until
// one is left. An element of the merged row is found by bisection: among its first o elements are
// i of run a and o - i of run b, where i is the least with a[i] > b[o - 1 - i]. Of every 16th
// element it is searched in the whole runs, of the others within 16 places behind that. So each of
// log n levels is two kernels without a dependence between elements, of n / 16 log n and 4 n steps.
// Of the k smallest, no run is longer than k.
//
// The k smallest of many: the row is cut into segments. Each of the k is in one of the k segments
// with the smallest least elements, so these are found first, in the same way, and then only the
// elements of these segments are sorted. With segments of sqrt(n / k) elements both are sorts of
// about sqrt(n k). Where these are many, nothing but the k is sorted: the k-th in order is found
// bit by bit, by counting, and those up to it are written one behind another.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/base/status.h"
#include "engine/frontend/ops/reduce.h"
#include "engine/frontend/ops/rows.h"
#include "engine/frontend/tensor/shapes.h"

namespace telegrad {
namespace {

constexpr int64_t kCounted = 512;  // sorted by counting where it is all
constexpr int64_t kRun = 256;      // or where it is a run of a longer row
constexpr int64_t kStride = 16;    // elements of a merged row, of which the first is searched far
constexpr int64_t kLowest = int64_t{1} << 31;
constexpr int64_t kKeyUnit = int64_t{1} << 32;  // what a key is multiplied by

constexpr int64_t kSegmented = 128;     // elements of a row from which segments of it pay
constexpr int64_t kShortest = 4;        // of them
constexpr int64_t kMostSorted = 4096;   // elements of the segments that are taken
constexpr int64_t kManySorted = 32768;  // of rows that have no segments
constexpr int64_t kFewest = 64;         // that many rows are counted for, not sorted,
constexpr int64_t kDense = 64;          // if they are no smaller part of the rows
// Begins what segments are filled up with, so that it is not what runs are filled up with.
constexpr int64_t kSecondPadding = int64_t{1} << 30;

// Integers in the order of x, of 32 bits or, of types of 64 bits, i64. -0 equals 0, NaN comes last.
Tensor OrderKey(const Tensor& x) {
  const DType type = x.dtype();
  if (IsFloat(type)) {
    const bool wide = type == DType::kFloat64;
    const Tensor v = wide ? x : x.Cast(DType::kFloat32);
    const Tensor number = v.Eq(v);
    const Tensor bits =
        v.Eq(0).Where(0.0, v).Bitcast(wide ? DType::kInt64 : DType::kInt32).Cast(DType::kInt64);
    const int64_t most = wide ? std::numeric_limits<int64_t>::max() : kLowest - 1;
    return number.Where(bits.Lt(0).Where(bits.Xor(most), bits), most);
  }
  if (type == DType::kUInt64) {
    return x.Bitcast(DType::kInt64).Xor(std::numeric_limits<int64_t>::min());
  }
  const Tensor key = x.Cast(DType::kInt64);
  return type == DType::kUInt32 ? key - kLowest : key;
}

// Distinct i64 in rows, [.., .., n] -> the `keep` smallest of each row, in order.
Tensor SortByCounting(const Tensor& x, int64_t keep) {
  Builder* b = x.builder();
  const Dims from = x.dims();
  const Tensor below = x.Unsqueeze(-2).Lt(x.Unsqueeze(-1)).Cast(DType::kInt32).Sum({-1});
  const Tensor row = b->Iota(DType::kInt64, Dim(x.SizeOf({0, 1}))).Reshape({from[0], from[1], 1});
  const Tensor place = below.Lt(keep).Where(below.Cast(DType::kInt64) + row * keep, -1);
  const Dims to = {from[0], from[1], keep};
  return b->Zeros(to, DType::kInt64)
      .Flatten()
      .Scatter(place.Contiguous().Flatten(), x.Flatten(), ScatterKind::kSet)
      .Reshape(to);
}

// [rows, pairs, 2, n] of sorted runs -> [rows, pairs, keep], the first ones of both merged, of at
// most 2 n. Of every kStride-th element the place is searched in the whole runs, of the others from
// there on.
Tensor MergePairs(const Tensor& x, int64_t keep) {
  Builder* b = x.builder();
  const int64_t n = x.dim(3), strides = CeilDiv(keep, kStride);
  const Tensor flat = x.Contiguous().Flatten();
  const Tensor pair =
      b->Iota(DType::kInt64, Dim(x.SizeOf({0, 1}))).Reshape({x.dims()[0], x.dims()[1], 1});
  const Tensor begin = pair * (2 * n);  // of run a; run b follows
  // How many of run a are among the first `o`: the least i from `i` on with a[i] > b[o - 1 - i],
  // below i + 2 * step.
  const auto search = [&](const Tensor& o, Tensor i, int64_t step) {
    const Tensor most = o.Minimum(n);
    for (; step > 0; step /= 2) {
      const Tensor next = i + step;
      const Tensor a = flat.Gather(begin + next - 1), c = flat.Gather(begin + n + o - next);
      i = next.Le(most).And(a.Lt(c)).Where(next, i);
    }
    return i;
  };
  const auto numbers = [&](int64_t count) {
    return b->Iota(DType::kInt64, count).Expand({x.dims()[0], x.dims()[1], count});
  };
  const Tensor first = numbers(strides) * kStride, o = numbers(keep);
  const Tensor coarse =
      search(first, (first - n).Maximum(0), std::bit_floor(static_cast<uint64_t>(n))).Contiguous();
  const Tensor from = coarse.Unsqueeze(3)
                          .Expand({x.dims()[0], x.dims()[1], strides, kStride})
                          .Flatten(2, 3)
                          .Slice(2, 0, keep);
  // Within the run in a form of which its bounds follow: what is read then needs no checks.
  const Tensor least = (o - n).Maximum(0), within = (from * -1).Maximum(-n) * -1;
  const Tensor i = search(o, within.Maximum(least), kStride / 2), j = o - i;
  const Tensor a = flat.Gather(begin + i), c = flat.Gather(begin + n + j);
  return i.Lt(n).And(j.Ge(n).Or(a.Lt(c))).Where(a, c);
}

// Rows made longer, by numbers above all that sort, which are different for other `from`.
Tensor Lengthened(const Tensor& x, int64_t n, int64_t from) {
  const int64_t have = x.dim(1);
  if (have == n) return x;
  const Tensor position = x.builder()->Iota(DType::kInt64, n);
  return position.Lt(have).Where(x.Pad({0, 0, 0, n - have}),
                                 std::numeric_limits<int64_t>::max() - from - position);
}

// All of [rows, n] or fewer of its smallest, in order.
Tensor SortWhole(Tensor x, int64_t keep) {
  const Dim rows = x.dims()[0];
  int64_t runs = 1;
  if (x.dim(1) > kCounted) {
    while (CeilDiv(x.dim(1), runs) > kRun) runs *= 2;
  }
  const int64_t length = CeilDiv(x.dim(1), runs);
  x = Lengthened(x, runs * length, 0).Reshape({rows, runs, length});
  // What is behind the first `keep` of a run is behind those of the row.
  x = SortByCounting(x, std::min(keep, length));
  for (; x.dim(1) > 1; runs /= 2) {
    const int64_t n = x.dim(2);
    x = MergePairs(x.Reshape({rows, runs / 2, 2, n}), std::min(keep, 2 * n));
  }
  return x.Reshape({rows, x.dim(2)}).Slice(1, 0, keep);
}

// Of segments of a row of which `keep` elements are wanted.
int64_t SegmentLength(int64_t n, int64_t keep) {
  return std::llround(std::sqrt(static_cast<double>(n / keep)));
}

// A matrix [rows, n] of distinct i64 in each row -> [rows, keep], the smallest ones in order. The
// lower half of an element of column i is a position from i * span up to (i + 1) * span.
Tensor SortRows(const Tensor& x, int64_t keep, int64_t span = 1) {
  const Dim rows = x.dims()[0];
  const int64_t n = x.dim(1);
  const int64_t length = SegmentLength(n, keep);
  if (n < kSegmented || length < kShortest || n >= kSecondPadding) return SortWhole(x, keep);
  const int64_t segments = CeilDiv(n, length);
  const Tensor all = Lengthened(x, segments * length, kSecondPadding).Contiguous();
  const Tensor least = all.Reshape({rows, segments, length}).Min({2}).Contiguous();
  const Tensor best = SortRows(least, keep, span * length);
  Builder* b = x.builder();
  const Tensor row = b->Iota(DType::kInt64, rows).Reshape(Dims{rows, 1});
  const Tensor taken = best.And(kKeyUnit - 1).FloorDiv(span * length) + row * segments;
  const Tensor few = all.Reshape({rows, segments, length}).Flatten(0, 1).Gather(taken);
  return SortWhole(few.Reshape({rows, keep * length}), keep);
}

// Of each row of i32 keys the one at place `keep` of their order, counted from 1: [rows, 1]. Two
// bits at a time are found, from the highest on, by counting the keys below three numbers. What the
// numbers are made of is read from memory, so that all steps are one kernel.
Tensor Threshold(const Tensor& key, int64_t keep) {
  constexpr int64_t kSteps = 16, kMost = 3;
  Builder* b = key.builder();
  const Tensor shift = b->Iota(DType::kInt32, kSteps) * 2;
  const Tensor units = b->Full(DType::kInt32, {kSteps}, 1 << 30).ShiftRight(shift).Contiguous();
  Tensor least = b->Full(DType::kInt32, {key.dims()[0], 1}, -kLowest).Contiguous();
  for (int64_t i = 0; i < kSteps; ++i) {
    const Tensor unit = units.Slice(0, i, i + 1);
    Tensor times = least.Like(0);
    for (int64_t k = 1; k <= kMost; ++k) {
      const Tensor below = key.Lt(least + unit * k).Cast(DType::kInt32).Sum({1}, true);
      times = times + below.Lt(keep).Cast(DType::kInt32);
    }
    least = (least + unit * times).Contiguous();
  }
  return least;
}

// Positions [rows, keep] of the smallest of i32 keys [rows, n], of equals the first ones, in the
// order of their positions. A key's place is the number of those that are taken before it.
Tensor TakenPositions(const Tensor& key, int64_t keep) {
  Builder* b = key.builder();
  const Dims from = key.dims();
  const Tensor last = Threshold(key, keep);
  const Tensor below = key.Lt(last), equal = key.Eq(last);
  const Tensor both = below.Cast(DType::kInt64) + equal.Cast(DType::kInt64) * kKeyUnit;
  const Tensor before = both.CumSum(1).Contiguous() - both;
  const Tensor equal_before = before.ShiftRight(32);
  const Tensor wanted = (keep - below.Cast(DType::kInt64).Sum({1}, true)).Contiguous();
  const Tensor taken = below.Or(equal.And(equal_before.Lt(wanted)));
  const Tensor row = b->Iota(DType::kInt64, from[0]).Reshape(Dims{from[0], 1});
  const Tensor place = before.And(kKeyUnit - 1) + equal_before.Minimum(wanted) + row * keep;
  const Dims to = {from[0], keep};
  return b->Zeros(to, DType::kInt64)
      .Flatten()
      .Scatter(taken.Where(place, -1).Contiguous().Flatten(),
               b->Iota(DType::kInt64, key.dim(1)).Expand(from).Flatten(), ScatterKind::kSet)
      .Reshape(to);
}

// The same of a row that is cut into segments, each of some `length` elements: in those of the
// smallest least elements are the smallest of all.
Tensor TakenOfSegments(const Tensor& key, int64_t keep, int64_t length) {
  const Dim rows = key.dims()[0];
  const int64_t n = key.dim(1), segments = CeilDiv(n, length);
  Tensor all = key;
  if (segments * length > n) {
    const Tensor inside = key.builder()->Iota(DType::kInt32, segments * length).Lt(n);
    all = inside.Where(key.Pad({0, 0, 0, segments * length - n}), kLowest - 1);
  }
  all = all.Reshape({rows, segments, length});
  const Tensor best = TakenPositions(all.Min({2}).Contiguous(), keep);
  const Tensor row = key.builder()->Iota(DType::kInt64, rows).Reshape(Dims{rows, 1});
  const Tensor few = all.Flatten(0, 1).Gather(best + row * segments);
  const Tensor at = TakenPositions(few.Reshape({rows, keep * length}).Contiguous(), keep);
  const Tensor which = at.FloorDiv(length);
  return best.TakeAlong(1, which) * length + (at - which * length);
}

// Positions [rows, keep] i32 of the smallest keys of 32 bits, stable.
Tensor Positions32(const Tensor& key, int64_t keep) {
  const int64_t n = key.dim(1), length = SegmentLength(n, keep);
  const bool segmented = length >= kShortest;
  const bool dense = keep >= kFewest && n >= 2 * keep && n < kDense * keep;
  if (segmented ? keep * length * (dense ? key.dim(0) : 1) > kMostSorted
                : dense && key.dim(0) * n > kManySorted) {
    const Tensor narrow = key.Cast(DType::kInt32);
    const Tensor taken =
        (segmented ? TakenOfSegments(narrow, keep, length) : TakenPositions(narrow, keep))
            .Contiguous();
    const Tensor few = narrow.TakeAlong(1, taken).Cast(DType::kInt64);
    return SortWhole(few * kKeyUnit + taken, keep).And(kKeyUnit - 1).Cast(DType::kInt32);
  }
  const Tensor position = key.builder()->Iota(DType::kInt64, key.dim(1));
  return SortRows(key * kKeyUnit + position, keep).And(kKeyUnit - 1).Cast(DType::kInt32);
}

// The i64 keys' positions, in order.
Tensor SortedPositions(const Tensor& key, DType type, int64_t keep) {
  if (ByteSize(type) < 8) return Positions32(key, keep);
  const Tensor low = Positions32(key.And(2 * kLowest - 1) - kLowest, key.dim(1));
  const Tensor high = Positions32(key.ShiftRight(32).TakeAlong(1, low), keep);
  return low.TakeAlong(1, high);
}

}  // namespace

// The `keep` first ones of the order along an axis; all where it is below 0.
Tensor Tensor::Order(std::string_view name, int64_t axis, bool descending, int64_t keep) const {
  if (!valid()) return *this;
  const absl::StatusOr<Rows> rows = RowsOf(name, *this, axis);
  if (!rows.ok()) return builder_->Fail(rows.status());
  const int64_t n = rows->n();
  if (keep > n) {
    return builder_->Fail(InvalidArgument(name, ": axis ", rows->axis, " of ", ToString(dims()),
                                          " has ", n, " elements, expected at least k = ", keep));
  }
  const Dim size = keep < 0 ? rows->moved.back() : Dim(keep);
  if (keep < 0) keep = n;
  if (keep == 0 || this->size() == 0) {
    return rows->Back(builder_->Zeros({rows->matrix.dims()[0], keep}, DType::kInt32), size);
  }
  Tensor key = OrderKey(rows->matrix);
  if (descending) key = key.Xor(-1);
  if (!rows->moved.back().is_static()) {
    const Tensor inside =
        builder_->Iota(DType::kInt64, n).Lt(Tensor(builder_, rows->moved.back().value()));
    const bool wide = ByteSize(dtype()) == 8;
    key = inside.Where(key, wide ? std::numeric_limits<int64_t>::max() : kLowest - 1);
  }
  return rows->Back(SortedPositions(key, dtype(), keep), size);
}
std::pair<Tensor, Tensor> Tensor::Sort(int64_t axis, bool descending) const {
  const Tensor positions = Order("sort", axis, descending);
  return {positions.valid() ? TakeAlong(axis, positions) : positions, positions};
}

Tensor Tensor::ArgSort(int64_t axis, bool descending) const {
  return Order("argsort", axis, descending);
}

std::pair<Tensor, Tensor> Tensor::TopK(int64_t k, int64_t axis, bool largest) const {
  if (valid() && k < 0) {
    const Tensor failed = builder_->Fail(InvalidArgument("topk: k is ", k, ", expected 0 or more"));
    return {failed, failed};
  }
  const Tensor positions = Order("topk", axis, largest, k);
  return {positions.valid() ? TakeAlong(axis, positions) : positions, positions};
}

}  // namespace telegrad
