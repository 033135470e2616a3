// A softmax over rows of which only a block is kept at a time, by the threads of a workgroup.
#pragma once

#include "engine/lowering/online_match.h"
#include "engine/types/target.h"

namespace telegrad {

// What SumOnline does (online.h), in nests whose iterations the threads of a workgroup share. Each
// warp has some of the rows, and of a block of scores, as of what is added up, a thread has
// the same elements in every nest: those that a matrix instruction gives it. So scores, weights and
// sums stay in registers, lanes that have parts of a row exchange its maximum, and what operands of
// the products threads share is copied into local memory. Where the target has an instruction for
// the operands' type, both products are made of these, and weights are rounded to that type. The
// parallel loops are left for moves to make workgroups of. Invalid where the kernel is none for
// that: it has one row, or too little local memory.
UOp SumOnlineTogether(Rewriter& b, const Target& target, const CoupledSums& sums);

}  // namespace telegrad
