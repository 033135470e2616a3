// The expressions of a softmax that is taken while its row's maximum is not known yet.
#pragma once

#include "engine/lowering/online_match.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

class OnlineTerms {
 public:
  OnlineTerms(Rewriter& b, const CoupledSums& sums);

  UOp Lowest();  // of which nothing is known yet: -inf
  // What is subtracted where the maximum, of the row so far, is `maximum`: that, whatever the
  // kernel subtracts in its place. A shift that does not grow with the maximum would rescale by
  // exponentials without bound, and 0 times infinity is no number.
  UOp Shift(UOp maximum);
  UOp Exponential(UOp x, UOp y);  // exp2((x - y) scale)
  // By what is multiplied what was added up so far, where the maximum was `old`: 0 while that is
  // -inf.
  UOp Rescaling(UOp old, UOp maximum);
  // `value`, added up in a row with this maximum, in the end: multiplied by
  // exp2((Shift(maximum) - the kernel's shift) scale). `hides_rows`: see WeightedSum.
  UOp Corrected(UOp value, UOp maximum, bool hides_rows);

 private:
  Rewriter& b_;
  Graph& g_;
  const CoupledSums& s_;
};

}  // namespace telegrad
