// What clients without IOTA, GATHER and SCATTER send in their place: comparisons of indices, and
// reductions of what the comparisons select.
#pragma once

#include <vector>

#include "engine/ir/graph.h"

namespace telegrad::testing {

class Masked {
 public:
  explicit Masked(Graph* graph) : g_(*graph) {}

  UOp To(Op op, UOp x, const std::vector<int64_t>& arg) { return g_.Make(op, {x}, arg); }
  UOp Fold(ReduceKind kind, UOp x, int64_t axis) {
    return g_.Make(Op::kReduce, DType::kVoid, {x}, {static_cast<int64_t>(kind), axis});
  }
  // x, whose dims end with those of `like` or are 1 there, as [`dims`].
  UOp Broadcast(UOp x, Shape dims);
  UOp Constant(DType dtype, double value, const Shape& dims);

  // 0, 1, ... n-1: the row sums of a triangle of ones, less 1, the triangle being a padded row that
  // is repeated and cut one short.
  UOp Arange(DType dtype, int64_t n);
  // The same, the triangle as comparisons of two IOTAs.
  UOp CountedArange(DType dtype, int64_t n);

  // [m, n]: whether element i of `index` [m] is j.
  UOp Hits(UOp index, UOp places) {
    const int64_t m = index.shape()[0], n = places.shape()[0];
    return g_.Make(Op::kCmpEq,
                   {Broadcast(To(Op::kReshape, index, {m, 1}), {m, n}), Broadcast(places, {m, n})});
  }
  UOp Not(UOp x) { return g_.Make(Op::kCmpNe, {x, g_.True()}); }

  // The rows of x [n, ...] that index [m] names, 0 where it names none.
  UOp Rows(UOp x, UOp index, UOp places);
  // [n, ...]: what of the rows of v [m, ...] the index [m] sends to each place, folded.
  UOp Scattered(ReduceKind kind, UOp v, UOp index, UOp places);
  // x [n, ...] after the rows of v [m, ...] were written, one by one, to where the index [m] says:
  // a WHERE for each row. `any_first`: those with a write somewhere are told by a disjunction.
  UOp Written(UOp x, UOp v, UOp index, UOp places, bool any_first);

 private:
  Graph& g_;
};

}  // namespace telegrad::testing
