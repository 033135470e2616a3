#include "engine/schedule/fixed_sums.h"

#include <vector>

namespace telegrad {
namespace {

// The product that a float sum adds up, and the views between them, from the sum's source down.
// Empty where there is none.
std::vector<UOp> WayToProduct(UOp reduce) {
  if (!reduce.is(Op::kReduce) || !IsFloat(reduce.dtype()) ||
      static_cast<ReduceKind>(reduce.arg(0)) != ReduceKind::kAdd) {
    return {};
  }
  std::vector<UOp> way{reduce.src(0)};
  while (Is(way.back().op(), kMovement)) way.push_back(way.back().src(0));
  if (!way.back().is(Op::kMul)) way.clear();
  return way;
}

bool IsConstant(UOp u) {
  while (Is(u.op(), kMovement)) u = u.src(0);
  return u.is_const();
}

}  // namespace

bool SumsProducts(UOp reduce) {
  const std::vector<UOp> way = WayToProduct(reduce);
  if (way.empty()) return false;
  const UOp x = way.back().src(0), y = way.back().src(1);
  return x != y && !IsConstant(x) && !IsConstant(y);
}

absl::StatusOr<FrozenGraph> RoundSharedProducts(FrozenGraph graph, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  NodeMap<int> users(from);
  for (uint32_t id : order) {
    TG_RETURN_IF_ERROR(budget->SpendSteps(1 + static_cast<int64_t>(from.src(id).size())));
    for (uint32_t s : from.src(id)) ++users[s];
  }
  auto out = std::make_shared<Graph>();
  NodeMap<uint32_t> made(from);
  std::vector<UOp> src;
  const auto copy = [&](UOp u) {
    return out->Make(u.op(), u.dtype(), src, std::vector<int64_t>(u.arg().begin(), u.arg().end()));
  };
  bool changed = false;
  for (uint32_t id : order) {
    const UOp u = from.at(id);
    std::vector<UOp> way = WayToProduct(u);
    bool shared = false;
    for (UOp step : way) shared |= users[step] > 1;
    src.clear();
    for (uint32_t s : u.src_ids()) src.push_back(out->at(made[s]));
    if (shared) {
      TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(way.size())));
      const UOp product = way.back();
      src = {out->Make(Op::kMulAcc, {out->at(made[product.src(0)]), out->at(made[product.src(1)]),
                                     out->ConstFloat(product.dtype(), -0.0)})};
      for (way.pop_back(); !way.empty(); way.pop_back()) src = {copy(way.back())};
      changed = true;
    }
    const UOp node = copy(u);
    if (!node.valid()) return out->status();
    made[id] = node.id();
  }
  if (!changed) return graph;
  return FrozenGraph{std::move(out), made[graph.root()]};
}

}  // namespace telegrad
