// The expressions of a softmax that is taken while its row's maximum is not known yet.
#pragma once

#include "engine/lowering/online_match.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

class OnlineTerms {
 public:
  // `shift`: what weights are computed with, in terms of the maximum so far: the kernel's, or the
  // maximum itself.
  OnlineTerms(Rewriter& b, const CoupledSums& sums, UOp shift);

  UOp Lowest();  // of which nothing is known yet: -inf
  // What is subtracted where the maximum, of the row so far, is `maximum`.
  UOp Shift(UOp maximum);
  UOp Exponential(UOp x, UOp y);  // exp2((x - y) scale)
  // By what is multiplied what was added up so far, where the maximum was `old`: 0 while that is
  // -inf.
  UOp Rescaling(UOp old, UOp maximum);
  // By what the sums are multiplied in the end; invalid: nothing.
  UOp Correction();
  // `value`, added up in a row with this maximum, in the end. `hides_rows`: see WeightedSum.
  UOp Corrected(UOp value, UOp maximum, bool hides_rows);

 private:
  UOp ShiftAt(UOp maximum);

  Rewriter& b_;
  Graph& g_;
  const CoupledSums& s_;
  const UOp shift_;
  bool guarded_ = true;  // the shift of a row without any score may be no finite number
};

}  // namespace telegrad
