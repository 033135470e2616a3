// The order of the operands of commutative ops, so that equal expressions are one node. It is by
// node id, but constants come last and scalars come before shaped values; in a sum IOTA comes after
// all, because a vector index ADD(scalar, IOTA) is contiguous memory.
#pragma once

#include "engine/ir/graph.h"

namespace telegrad {

inline int OperandRank(UOp u) {
  if (u.is(Op::kIota)) return 3;
  if (u.is_const()) return 2;
  return u.shape().empty() ? 0 : 1;
}

// Whether a commutative op on (a, b) should be one on (b, a). Chains that associate exactly
// (integer sums, and, or) are left to the rules that order the whole chain.
inline bool OutOfOrder(Op op, UOp a, UOp b) {
  const int rank_a = OperandRank(a), rank_b = OperandRank(b);
  if (op != Op::kAdd && a.is_const() != b.is_const()) return a.is_const();
  if (rank_a != rank_b) return rank_a > rank_b;
  if (op == Op::kAnd || op == Op::kOr || (op == Op::kAdd && IsInt(a.dtype()))) return false;
  return a.id() > b.id();
}

}  // namespace telegrad
