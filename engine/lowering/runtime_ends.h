// Loops that end where a number that the run gives says that all is done.
#pragma once

#include "engine/ir/graph.h"
#include "engine/rewrite/rewriter.h"

namespace telegrad {

// A kernel for all values of a variable has loops over the variable's bound: beyond its value
// stores are gated, and what is reduced is the identity. Where that follows from comparisons that
// are linear in a RANGE and otherwise have only numbers that are the same in all iterations (they
// are loaded from arguments that the kernel does not write), the RANGE gets an end that is computed
// from these numbers: of the iterations, or tiles, only those run in which something happens. Gates
// that then always hold are removed; the others are left for the last tile.
//
// The results are those of the loops as they were, bit by bit. The bound stays the most iterations
// that a RANGE has, so costs and proofs are for that. Workgroups beyond an end leave at once, and
// have the last numbers where one range of them ends (run_groups.h); where the threads of one share
// memory, the loops inside stay as they are.
UOp EndLoops(Rewriter& b, UOp sink);

}  // namespace telegrad
