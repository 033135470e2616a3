// Views as index arithmetic: a movement op maps an index into its result to one into its source.
#pragma once

#include <vector>

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// One expression for each axis.
using Indices = std::vector<UOp>;

// Arithmetic on i64 expressions of a kernel graph, simplified as it is made.
class IndexMath {
 public:
  explicit IndexMath(Rewriter* rewriter) : b_(*rewriter), g_(*rewriter->graph()) {}

  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t c) { return b_.Make(Op::kMul, {x, g_.Index(c)}); }
  UOp Div(UOp x, int64_t c) { return b_.Make(Op::kFloorDiv, {x, g_.Index(c)}); }
  UOp Mod(UOp x, int64_t c) { return b_.Make(Op::kFloorMod, {x, g_.Index(c)}); }
  UOp And(UOp x, UOp y) { return b_.Make(Op::kAnd, {x, y}); }
  // 0 <= x < n; folds to true where the bounds show it.
  UOp InRange(UOp x, int64_t n) {
    return And(b_.Make(Op::kCmpLt, {g_.Index(-1), x}), b_.Make(Op::kCmpLt, {x, g_.Index(n)}));
  }
  // The place in row-major order.
  UOp Flat(ShapeView dims, const Indices& index);

  // The position in the source of `view`, a movement op; `*valid` gains the conditions of a PAD.
  Indices ThroughView(UOp view, const Indices& index, UOp* valid);

 private:
  Indices ThroughReshape(ShapeView from, ShapeView to, const Indices& index);

  Rewriter& b_;
  Graph& g_;
};

}  // namespace telegrad
