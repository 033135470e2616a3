// A softmax over the part of a row that a run gives, as one of scores that are hidden.
#pragma once

#include "engine/base/budget.h"
#include "engine/base/status.h"
#include "engine/ir/graph.h"
#include "engine/schedule/fusion.h"

namespace telegrad {

// `graph` is legalized. A general form (rewrite/generalize.h) masks each reduction over a size of
// the run by itself, with the identity beyond that size. Where the reductions are those of a
// softmax that weights a sum, the scores and the values are masked in their place:
//
//   max over k < n of s[k]                          max over all k of t[k]
//   sum over k < n of exp2((s[k] - m) c)       =    sum over all k of exp2((t[k] - m) c)
//   sum over k < n of exp2((s[k] - m) c) v[k]       sum over all k of exp2((t[k] - m) c) u[k]
//
// where t is s, and -inf from n on, and u is v, and 0 from n on. So it is an attention whose mask
// hides keys, for which lowering has one loop that ends at n (lowering/online.h). There must be an
// element at least. All results have the same bits.
absl::StatusOr<FrozenGraph> MaskScores(FrozenGraph graph, Budget* budget);

// Whether the plan of such a graph has kernels that keep the rows of all softmaxes of masked
// scores. Elsewhere reductions that are masked by themselves are better: their loops end at n.
bool KeepsMaskedRows(const Graph& graph, const FusionPlan& plan);

}  // namespace telegrad
