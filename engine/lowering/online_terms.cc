#include "engine/lowering/online_terms.h"

#include <limits>

namespace telegrad {

OnlineTerms::OnlineTerms(Rewriter& b, const CoupledSums& sums) : b_(b), g_(*b.graph()), s_(sums) {}

UOp OnlineTerms::Lowest() {
  return g_.ConstFloat(s_.maximum.dtype(), -std::numeric_limits<double>::infinity());
}

UOp OnlineTerms::Shift(UOp maximum) {
  const UOp none = b_.Make(Op::kCmpEq, {maximum, Lowest()});
  const UOp shift = b_.Make(Op::kWhere, {none, g_.ConstFloat(maximum.dtype(), 0.0), maximum});
  if (s_.shift == s_.maximum) return shift;
  // What the kernel subtracts there, so that weights are infinite and not exp2(inf - inf).
  const UOp most = g_.ConstFloat(maximum.dtype(), std::numeric_limits<double>::infinity());
  const UOp at_most = Substitute(b_, s_.shift, {{s_.maximum.id(), {most, {}}}});
  return b_.Make(Op::kWhere, {b_.Make(Op::kCmpEq, {maximum, most}), at_most, shift});
}

UOp OnlineTerms::Exponential(UOp x, UOp y) {
  UOp difference = b_.Make(Op::kSub, {x, y});
  if (s_.scale.valid()) difference = b_.Make(Op::kMul, {difference, s_.scale});
  return b_.Make(Op::kExp2, {difference});
}

UOp OnlineTerms::Rescaling(UOp old, UOp maximum) {
  const UOp nothing = b_.Make(Op::kCmpEq, {old, Lowest()});
  // Nodes are made one after another, not as arguments of one call, whose order compilers choose.
  const UOp before = Shift(old);
  const UOp by = Exponential(before, Shift(maximum));
  return b_.Make(Op::kWhere, {nothing, g_.ConstFloat(old.dtype(), 0.0), by});
}

UOp OnlineTerms::Corrected(UOp value, UOp maximum, bool hides_rows) {
  if (hides_rows && s_.shift == s_.maximum) return value;
  const UOp shift = Substitute(b_, s_.shift, {{s_.maximum.id(), {maximum, {}}}});
  const UOp corrected = b_.Make(Op::kMul, {value, Exponential(Shift(maximum), shift)});
  if (!hides_rows) return corrected;
  return b_.Make(Op::kWhere, {b_.Make(Op::kCmpEq, {maximum, Lowest()}), value, corrected});
}

}  // namespace telegrad
