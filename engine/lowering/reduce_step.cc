#include "engine/lowering/reduce_step.h"

namespace telegrad {

UOp Reduced(Rewriter& b, ReduceKind kind, UOp x, UOp y, bool fuses) {
  switch (kind) {
    case ReduceKind::kAdd:
      // Of a reduced MMA what it adds to is 0 (workgroup_matmul.h).
      if (y.is(Op::kMma)) {
        return b.graph()->Make(Op::kMma, DType::kVoid, {y.src(0), y.src(1), x},
                               {y.arg()[0], y.arg()[1], y.arg()[2]});
      }
      if (y.is(Op::kDot4) && y.src(2).is_const() && y.src(2).const_word() == 0) {
        return b.Make(Op::kDot4, {y.src(0), y.src(1), x});
      }
      if (fuses && y.is(Op::kMul) && IsFloat(y.dtype())) {
        return b.Make(Op::kMulAcc, {y.src(0), y.src(1), x});
      }
      return b.Make(Op::kAdd, {x, y});
    case ReduceKind::kMul:
      return b.Make(Op::kMul, {x, y});
    case ReduceKind::kMax:
      return b.Make(Op::kMax, {x, y});
  }
  return {};
}

UOp ReducedLanes(Graph& g, UOp reduce, UOp vector) {
  const UOp folded = g.Make(Op::kReduce, DType::kVoid, {vector}, {ToWord(reduce.reduce_kind()), 0});
  return g.Make(Op::kReshape, DType::kVoid, {folded}, {});
}

}  // namespace telegrad
