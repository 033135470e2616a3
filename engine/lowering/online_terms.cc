#include "engine/lowering/online_terms.h"

#include <cmath>
#include <limits>

#include "engine/ir/scalar.h"

namespace telegrad {

OnlineTerms::OnlineTerms(Rewriter& b, const CoupledSums& sums, UOp shift)
    : b_(b), g_(*b.graph()), s_(sums), shift_(shift) {
  const UOp least = ShiftAt(Lowest());
  guarded_ = !least.is_const() || !std::isfinite(ScalarAsDouble(least.dtype(), least.const_word()));
}

UOp OnlineTerms::Lowest() {
  return g_.ConstFloat(s_.maximum.dtype(), -std::numeric_limits<double>::infinity());
}

UOp OnlineTerms::ShiftAt(UOp maximum) {
  return shift_ == s_.maximum ? maximum
                              : Substitute(b_, shift_, {{s_.maximum.id(), {maximum, {}}}});
}

UOp OnlineTerms::Shift(UOp maximum) {
  const UOp shift = ShiftAt(maximum);
  if (!guarded_) return shift;
  const UOp none = b_.Make(Op::kCmpEq, {shift, Lowest()});
  return b_.Make(Op::kWhere, {none, g_.ConstFloat(shift.dtype(), 0.0), shift});
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

UOp OnlineTerms::Correction() {
  if (!guarded_ && shift_ == s_.shift) return {};
  return Exponential(Shift(s_.maximum), s_.shift);
}

UOp OnlineTerms::Corrected(UOp value, UOp maximum, bool hides_rows) {
  const UOp correction = Correction();
  if (!correction.valid() || (hides_rows && shift_ == s_.shift)) return value;
  const UOp by = Substitute(b_, correction, {{s_.maximum.id(), {maximum, {}}}});
  const UOp corrected = b_.Make(Op::kMul, {value, by});
  if (!hides_rows) return corrected;
  return b_.Make(Op::kWhere, {b_.Make(Op::kCmpEq, {maximum, Lowest()}), value, corrected});
}

}  // namespace telegrad
