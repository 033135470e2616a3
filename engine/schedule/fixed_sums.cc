#include "engine/schedule/fixed_sums.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "engine/rewrite/copier.h"

namespace telegrad {
namespace {

bool AddsFloats(UOp u) {
  return u.is(Op::kReduce) && IsFloat(u.dtype()) && u.reduce_kind() == ReduceKind::kAdd;
}

}  // namespace

NodeMap<uint32_t> BeneathViews(const Graph& graph, std::span<const uint32_t> order) {
  NodeMap<uint32_t> beneath(graph);
  for (uint32_t id : order) {
    const UOp u = graph.at(id);
    beneath[id] = Is(u.op(), kMovement) ? beneath[u.src(0)] : id;
  }
  return beneath;
}

bool SumsProducts(UOp reduce, const NodeMap<uint32_t>& beneath) {
  if (!AddsFloats(reduce)) return false;
  const Graph& graph = *reduce.graph();
  const UOp product = graph.at(beneath.at(reduce.src(0).id()));
  if (!product.is(Op::kMul) || product.src(0) == product.src(1)) return false;
  return std::ranges::none_of(
      product.src_ids(), [&](uint32_t factor) { return graph.at(beneath.at(factor)).is_const(); });
}

absl::StatusOr<FrozenGraph> RoundSharedProducts(FrozenGraph graph, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  NodeMap<int> users(from);
  for (uint32_t id : order) {
    TG_RETURN_IF_ERROR(budget->SpendSteps(1 + static_cast<int64_t>(from.src(id).size())));
    for (uint32_t s : from.src(id)) ++users[s];
  }
  const NodeMap<uint32_t> beneath = BeneathViews(from, order);
  NodeMap<int64_t> way(from);  // to what is beneath it, in nodes
  NodeMap<bool> shared(from);  // one of those has several users
  Copier copier(graph);
  Graph* const out = copier.out();
  bool changed = false;
  const auto rounded = [&](UOp u) -> absl::StatusOr<UOp> {
    const bool view = Is(u.op(), kMovement);
    way[u] = view ? way[u.src(0)] + 1 : 1;
    shared[u] = users[u] > 1 || (view && shared[u.src(0)]);
    const bool rounds =
        AddsFloats(u) && shared[u.src(0)] && from.at(beneath.at(u.src(0).id())).is(Op::kMul);
    if (!rounds) return copier.Same(u);
    TG_RETURN_IF_ERROR(budget->SpendSteps(way[u.src(0)]));
    std::vector<UOp> views;
    UOp product = u.src(0);
    for (; !product.is(Op::kMul); product = product.src(0)) views.push_back(product);
    UOp value = out->Make(Op::kMulAcc, {copier.Made(product.src(0)), copier.Made(product.src(1)),
                                        out->ConstFloat(product.dtype(), -0.0)});
    for (; !views.empty(); views.pop_back()) value = MakeLike(out, views.back(), std::array{value});
    changed = true;
    return MakeLike(out, u, std::array{value});
  };
  TG_ASSIGN_OR_RETURN(FrozenGraph all, copier.Run(budget, rounded));
  return changed ? std::move(all) : std::move(graph);
}

}  // namespace telegrad
