// A value under construction: arithmetic in C++ that makes nodes. Numbers become constants of the
// value's type. For replacements that are too long for a pattern.
#pragma once

#include <cstdint>
#include <span>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

struct Term {
  Rewriter* b;
  UOp u;

  Term Number(double value) const {
    if (!u.valid()) return *this;  // the graph or the budget has failed
    const DType dtype = u.dtype();
    return {b, IsFloat(dtype) ? b->graph()->ConstFloat(dtype, value)
                              : b->graph()->Const(dtype, static_cast<int64_t>(value))};
  }
  Term Word(int64_t value) const { return {b, b->graph()->Const(u.dtype(), value)}; }
  Term To(Op op, DType dtype) const { return {b, b->Make(op, dtype, {u})}; }
  Term Cast(DType dtype) const { return To(Op::kCast, dtype); }
  Term Bitcast(DType dtype) const { return To(Op::kBitcast, dtype); }
  Term Floor() const { return To(Op::kFloor, u.dtype()); }
  Term Then(Op op, Term other) const { return {b, b->Make(op, {u, other.u})}; }
  Term Select(Term yes, Term no) const { return {b, b->Make(Op::kWhere, {u, yes.u, no.u})}; }
  // this * x + y, rounded once.
  Term MulAcc(Term x, Term y) const { return {b, b->Make(Op::kMulAcc, {u, x.u, y.u})}; }
  Term Equals(Term other) const { return Then(Op::kCmpEq, other); }
  Term Differs(Term other) const { return Then(Op::kCmpNe, other); }

  friend Term operator+(Term x, Term y) { return x.Then(Op::kAdd, y); }
  friend Term operator-(Term x, Term y) { return x.Then(Op::kSub, y); }
  friend Term operator*(Term x, Term y) { return x.Then(Op::kMul, y); }
  friend Term operator/(Term x, Term y) { return x.Then(Op::kFDiv, y); }
  friend Term operator<(Term x, Term y) { return x.Then(Op::kCmpLt, y); }
  friend Term operator&(Term x, Term y) { return x.Then(Op::kAnd, y); }
  friend Term operator|(Term x, Term y) { return x.Then(Op::kOr, y); }
  friend Term operator^(Term x, Term y) { return x.Then(Op::kXor, y); }
  friend Term operator&(Term x, int64_t mask) { return x & x.Word(mask); }
  friend Term operator|(Term x, int64_t mask) { return x | x.Word(mask); }
  friend Term operator^(Term x, int64_t mask) { return x ^ x.Word(mask); }
  friend Term operator<<(Term x, int64_t count) { return x.Then(Op::kShl, x.Word(count)); }
  friend Term operator>>(Term x, int64_t count) { return x.Then(Op::kShr, x.Word(count)); }
  friend Term operator<<(Term x, Term count) { return x.Then(Op::kShl, count); }
  friend Term operator>>(Term x, Term count) { return x.Then(Op::kShr, count); }
};

// The polynomial of these coefficients, lowest power first.
inline Term Horner(Term t, std::span<const double> ascending) {
  Term sum = t.Number(ascending.back());
  for (size_t i = ascending.size() - 1; i-- > 0;) sum = sum.MulAcc(t, t.Number(ascending[i]));
  return sum;
}

}  // namespace telegrad
