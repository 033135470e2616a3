// Reductions over the threads of a workgroup.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/rewrite/rewriter.h"

namespace telegrad {

// Where threads reduce.
struct WorkgroupPlace {
  std::vector<UOp> threads;  // all ranges of threads, outermost first
  std::vector<UOp> loops;    // around the reduction
  int64_t* next_slot;        // of a BUFFER: this one and all after it are free
  int64_t warp;              // threads that exchange values; 1: none do
};

// A BARRIER behind `before`, effects or the ranges in which it is. One of a thread alone only keeps
// the order.
UOp BarrierOf(Graph& g, Scope scope, std::span<const UOp> before);
UOp WorkgroupBarrier(Graph& g, std::span<const UOp> before);

// The fold of what the threads of the ranges `folded` have for `value`, a scalar or vector: every
// thread gets that of those which differ from it only in these ranges, all of them the same bits.
// The order is fixed. Lanes of a warp whose numbers differ in one bit are reduced with each other,
// the highest bit first; then what the warps have, in their order, or where these are many, groups
// of neighbours among them and then the groups.
UOp ReduceThreads(Rewriter& b, UOp value, const std::vector<UOp>& folded,
                  const WorkgroupPlace& place, const std::function<UOp(UOp, UOp)>& fold);

}  // namespace telegrad
