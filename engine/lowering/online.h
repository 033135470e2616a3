// Softmax over a row of which only a block is kept at a time.
#pragma once

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"
#include "engine/types/target.h"

namespace telegrad {

// The kernel keeps rows of scores in private memory, takes the maximum of each, and adds up
// exponentials and weighted values (online_match.h), as attention does. In one loop over blocks of
// keys, the scores of a block are computed, the maximum so far is updated, and what has been added
// up is rescaled to it:
//
//   m' = max(m, max over the block of e)
//   l' = l exp2((m - m') c) + sum over the block of exp2((e - m') c)
//   y' = y exp2((m - m') c) + sum over the block of exp2((e - m') c) v
//
// So private memory has a block of each row, and each score is computed and read from memory once.
// A row without any score above -inf has the result that it has in three loops: no number, unless
// the kernel says what else. Sums have another order, so this is not done where their order is
// fixed, and weighted sums are divided at the end, so they are as large as the values times the
// number of keys. Loops that threads of a workgroup may share stay as they are.
UOp SumOnline(Rewriter& b, UOp sink, const Target& target);

}  // namespace telegrad
