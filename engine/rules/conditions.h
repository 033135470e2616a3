// The functions of divmod's rows that compare and combine conditions.
#pragma once

#include "engine/rewrite/rule.h"

namespace telegrad {

// x < y, x == y and x != y on linear forms that have not wrapped.
UOp Less(Rewriter& b, const Match& m);
UOp Equality(Rewriter& b, const Match& m);
// x % c0 < c1 and c0 < x % c1 without the modulo, where x can only wrap once.
UOp ModuloBelow(Rewriter& b, const Match& m);
UOp ModuloAbove(Rewriter& b, const Match& m);

// (x < c0) ^ 1 and (c0 < x) ^ 1.
UOp NotLess(Rewriter& b, const Match& m);
// Two bounds on one value: the tighter one for "and", the looser one for "or".
UOp TwoUpperBounds(Rewriter& b, const Match& m);
UOp TwoLowerBounds(Rewriter& b, const Match& m);
// c1 < x and x < c0 with nothing between.
UOp EmptyInterval(Rewriter& b, const Match& m);
// One chain of the distinct conditions in the order of their ids.
UOp Chain(Rewriter& b, const Match& m);

}  // namespace telegrad
