// The forms that clients without index ops send: an index is compared with 0, 1, 2, ..., and
// what the comparison selects is reduced.
#include "tests/conformance/masked.h"

#include "engine/ir/scalar.h"

namespace telegrad::testing {

UOp Masked::Broadcast(UOp x, Shape dims) {
  Shape padded(dims.size() - x.shape().size(), 1);
  padded.insert(padded.end(), x.shape().begin(), x.shape().end());
  return To(Op::kExpand, To(Op::kReshape, x, padded), dims);
}

UOp Masked::Constant(DType dtype, double value, const Shape& dims) {
  const UOp c =
      IsFloat(dtype) ? g_.ConstFloat(dtype, value) : g_.Const(dtype, static_cast<int64_t>(value));
  return Broadcast(c, dims);
}

UOp Masked::Arange(DType dtype, int64_t n) {
  const UOp row = To(Op::kPad, Constant(dtype, 1, {n}), {n - 1, 2 * n - 1});
  const UOp rows = To(Op::kExpand, To(Op::kReshape, row, {1, 2 * n - 1}), {n + 1, 2 * n - 1});
  const UOp cut = To(Op::kShrink, To(Op::kReshape, rows, {(n + 1) * (2 * n - 1)}), {0, n * 2 * n});
  const UOp triangle = To(Op::kShrink, To(Op::kReshape, cut, {n, 2 * n}), {0, n, 0, n});
  const UOp sums = To(Op::kReshape, Fold(ReduceKind::kAdd, triangle, 1), {n});
  return g_.Make(Op::kSub, {sums, Constant(dtype, 1, {n})});
}

UOp Masked::CountedArange(DType dtype, int64_t n) {
  const UOp i = g_.Make(Op::kIota, DType::kInt32, {}, {n});
  const UOp below =
      g_.Make(Op::kCmpLt, {Broadcast(i, {n, n}), Broadcast(To(Op::kReshape, i, {n, 1}), {n, n})});
  const UOp ones =
      g_.Make(Op::kWhere, {below, Constant(dtype, 1, {n, n}), Constant(dtype, 0, {n, n})});
  return To(Op::kReshape, Fold(ReduceKind::kAdd, ones, 1), {n});
}

UOp Masked::Rows(UOp x, UOp index, UOp places) {
  const int64_t m = index.shape()[0], n = places.shape()[0];
  Shape all{m}, mask{m, n}, result{m};
  for (size_t d = 0; d < x.shape().size(); ++d) {
    all.push_back(x.shape()[d]);
    if (d == 0) continue;
    mask.push_back(1);
    result.push_back(x.shape()[d]);
  }
  const UOp hits = To(Op::kExpand, To(Op::kReshape, Hits(index, places), mask), all);
  const UOp rows = g_.Make(Op::kWhere, {hits, Broadcast(x, all), Constant(x.dtype(), 0, all)});
  return To(Op::kReshape, Fold(ReduceKind::kAdd, rows, 1), result);
}

UOp Masked::Scattered(ReduceKind kind, UOp v, UOp index, UOp places) {
  const int64_t m = index.shape()[0], n = places.shape()[0];
  Shape all{m, n}, one{m, 1}, mask{m, n}, result{n};
  for (size_t d = 1; d < v.shape().size(); ++d) {
    all.push_back(v.shape()[d]);
    one.push_back(v.shape()[d]);
    result.push_back(v.shape()[d]);
    mask.push_back(1);
  }
  const UOp hits = To(Op::kExpand, To(Op::kReshape, Hits(index, places), mask), all);
  const UOp rows = To(Op::kExpand, To(Op::kReshape, v, one), all);
  const UOp none = g_.ConstWord(v.dtype(), ReduceIdentity(kind, v.dtype()));
  const UOp sent = g_.Make(Op::kWhere, {hits, rows, Broadcast(none, all)});
  return To(Op::kReshape, Fold(kind, sent, 0), result);
}

UOp Masked::Written(UOp x, UOp v, UOp index, UOp places, bool any_first) {
  const int64_t m = index.shape()[0], n = places.shape()[0];
  Shape mask{m, n}, one{1, n}, row{1};
  for (size_t d = 1; d < x.shape().size(); ++d) {
    mask.push_back(1);
    one.push_back(x.shape()[d]);
    row.push_back(x.shape()[d]);
  }
  const Shape dims(x.shape().begin(), x.shape().end());
  Shape all = one;
  all[0] = m;
  const UOp hits = To(Op::kExpand, To(Op::kReshape, Hits(index, places), mask), all);
  const auto slice = [&](UOp from, int64_t k) {
    std::vector<int64_t> pairs{k, 1};
    for (size_t d = 1; d < from.shape().size(); ++d)
      pairs.insert(pairs.end(), {0, from.shape()[d]});
    return To(Op::kShrink, from, pairs);
  };
  Shape between = row;
  between.insert(between.begin() + 1, 1);
  UOp any, out = any_first ? UOp() : To(Op::kReshape, x, one);
  for (int64_t k = 0; k < m; ++k) {
    const UOp hit = slice(hits, k);
    const UOp value = To(Op::kExpand, To(Op::kReshape, slice(v, k), between), one);
    any = any.valid() ? g_.Make(Op::kOr, {any, hit}) : hit;
    out = out.valid() ? g_.Make(Op::kWhere, {hit, value, out}) : value;
  }
  out = To(Op::kReshape, out, dims);
  return any_first ? g_.Make(Op::kWhere, {To(Op::kReshape, any, dims), out, x}) : out;
}

}  // namespace telegrad::testing
