#include "engine/lowering/kernel_work.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

#include "engine/lowering/affine.h"
#include "engine/lowering/online_match.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/runtime_ends.h"
#include "engine/lowering/runtime_window.h"
#include "engine/lowering/shown_blocks.h"
#include "engine/lowering/substitute.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"

namespace telegrad {
namespace {

// Whether all that it is computed of is in that argument.
bool FollowsValues(UOp end, int64_t values) {
  const std::vector<uint32_t> order = PostOrder(end);
  return std::ranges::all_of(order, [&](uint32_t id) {
    const UOp u = end.graph()->at(id);
    return !u.is(Op::kParam) || u.slot() == values;
  });
}

// The loops over rows of scores end where the threads of a workgroup end them (shown_blocks.h).
UOp EndRows(Rewriter& b, UOp root) {
  const std::optional<CoupledSums> sums = MatchCoupledSums(b, root);
  if (!sums) return root;
  const UOp keys = KeysShown(b, *sums);
  if (!keys.valid()) return root;
  Replacements with;
  for (const uint32_t id : PostOrder(root)) {
    const UOp index = b.graph()->at(id);
    if (!index.is(Op::kIndex) || !Memory(index).is(Op::kBuffer)) continue;
    for (const uint32_t r : PostOrder(index.src(1))) {
      const UOp range = b.graph()->at(r);
      const bool along = range.is(Op::kRange) && range.src(0) == sums->key.src(0) &&
                         StrideOf(index.src(1), range) == sums->rows();
      if (!along || with.contains(r)) continue;
      const UOp ended = b.graph()->Range(range.range_id(), range.axis_type(), keys);
      with[r] = {ended, {ended}};
    }
  }
  return Substitute(b, root, with);
}

}  // namespace

absl::StatusOr<KernelWork> WorkOf(const FrozenGraph& kernel, int64_t values, const Target& target,
                                  Budget* budget) {
  Graph graph;
  graph.LimitSize(budget);
  UOp root = CopyLive(kernel.root(), &graph);
  Rewriter b(&graph, {&kAlgebra, &kDivMod}, budget);
  if (root.valid()) root = MoveWindows(b, root);
  if (root.valid() && target.has(ParallelLevel::kThreads)) root = EndRows(b, root);
  if (root.valid()) root = EndLoops(b, root);
  TG_RETURN_IF_ERROR(graph.status());
  const std::optional<Dependence> d = FindDependence(root);
  if (!d) return ResourceExhausted("lowering: more than ", kMaxRanges, " ranges");
  KernelWork work;
  for (const uint32_t id : PostOrder(root)) {
    const UOp u = graph.at(id);
    if (!u.is(Op::kStore) && !u.is(Op::kReduce)) continue;
    KernelWork own{1, 1};
    for (RangeSet set = d->of[u.is(Op::kReduce) ? u.src(0).id() : id]; set != 0; set &= set - 1) {
      const UOp end = d->ranges[static_cast<size_t>(std::countr_zero(set))].src(0);
      const int64_t least = FollowsValues(end, values) ? end.vmin() : end.vmax();
      own.least *= static_cast<double>(std::max<int64_t>(least, 1));
      own.most *= static_cast<double>(std::max<int64_t>(end.vmax(), 1));
    }
    work.least += own.least;
    work.most += own.most;
  }
  return work;
}

}  // namespace telegrad
