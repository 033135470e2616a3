#include "engine/schedule/cost.h"

#include <algorithm>

namespace telegrad {
namespace {

constexpr double kMostWork = 1e12;
// A shorter sum of products gains nothing from a tile.
constexpr double kShortFold = 16;

double CountOf(const Graph& graph, uint32_t id) {
  return static_cast<double>(std::max<int64_t>(1, NumElements(graph.shape(id))));
}

uint32_t JoinSets(uint32_t a, uint32_t b) {
  if (a == 0 || a == b) return b;
  return b == 0 ? a : kSeveral;
}

// The node below views and conversions; `*expands`: a view repeats elements on the way.
UOp BelowViews(UOp u, bool* expands) {
  while (Is(u.op(), kMovement) || u.is(Op::kCast) || u.is(Op::kDetach)) {
    if (Is(u.op(), kMovement) && NumElements(u.src(0).shape()) < NumElements(u.shape())) {
      *expands = true;
    }
    u = u.src(0);
  }
  return u;
}

// An op that decompositions spell out is as many as it then has.
double OpCost(Op op, const ScheduleCosts& costs) {
  switch (op) {
    case Op::kExp2:
    case Op::kLog2:
      return 12;
    case Op::kSin:
    case Op::kPow:
    case Op::kThreefry:
      return 60;
    case Op::kSqrt:
    case Op::kRecip:
    case Op::kFDiv:
    case Op::kFloorDiv:
    case Op::kFloorMod:
    case Op::kCDiv:
    case Op::kCMod:
      return costs.division;
    case Op::kBitcast:
    case Op::kCast:
      return 0.5;
    default:
      return 1;
  }
}

// Whether it is a position or size that the run gives: read once, whatever is compared with it.
bool IsOnePosition(const Graph& graph, uint32_t id, const NodeCost& cost) {
  return graph.dtype(id) == DType::kInt64 && CountOf(graph, id) == 1 && cost.level == 0;
}

}  // namespace

double FoldedExtent(UOp reduce) {
  double extent = 1;
  for (int64_t axis : reduce.reduced_axes()) {
    extent *= static_cast<double>(reduce.src(0).shape()[axis]);
  }
  return extent;
}

bool IsContraction(UOp reduce) {
  if (reduce.reduce_kind() != ReduceKind::kAdd) return false;
  if (FoldedExtent(reduce) < kShortFold) return false;
  bool outside = false, expands = false;
  const UOp product = BelowViews(reduce.src(0), &outside);
  if (!product.is(Op::kMul)) return false;
  BelowViews(product.src(0), &expands);
  BelowViews(product.src(1), &expands);
  return expands;
}

bool IsMatrixProduct(UOp reduce, int64_t tile) {
  if (!IsContraction(reduce)) return false;
  const int64_t longest = std::ranges::max(reduce.shape());
  return longest >= tile && NumElements(reduce.shape()) / longest >= tile;
}

UOp BelowMovement(UOp u) {
  while (Is(u.op(), kMovement)) u = u.src(0);
  return u;
}

bool Grows(UOp reduce) {
  if (!IsFloat(reduce.dtype()) || !IsContraction(reduce)) return false;
  const UOp product = BelowMovement(reduce.src(0));
  return std::ranges::all_of(product.src_ids(), [&](uint32_t id) {
    const UOp factor = BelowMovement(product.graph()->at(id));
    return NumElements(factor.shape()) < NumElements(reduce.shape());
  });
}

std::vector<NodeCost> EstimateCosts(const Graph& graph, const std::vector<uint32_t>& order,
                                    const std::vector<bool>& stored, const ScheduleCosts& machine) {
  std::vector<NodeCost> costs(order.empty() ? 0 : order.back() + 1);
  for (uint32_t id : order) {
    const Op op = graph.op(id);
    const UOp u = graph.at(id);
    NodeCost& cost = costs[id];
    if (op == Op::kParam || op == Op::kAfter || op == Op::kConst || op == Op::kIota) {
      cost.work = op == Op::kConst ? 0 : 1;
      cost.reads = op == Op::kParam || op == Op::kAfter;
      continue;
    }
    const double here = CountOf(graph, id);
    cost.varies = op == Op::kVar || u.symbolic();
    for (int i = 0; i < u.num_src(); ++i) {
      const uint32_t s = u.src(i).id();
      cost.varies = cost.varies || costs[s].varies;
      cost.level = std::max(cost.level, costs[s].level);
      const bool one = costs[s].reads && IsOnePosition(graph, s, costs[s]);
      cost.given = cost.given || one || costs[s].given;
      cost.reads = cost.reads || (costs[s].reads && !one);
      bool seen = false;
      for (int k = 0; k < i; ++k) seen |= u.src(k).id() == s;
      if (seen) continue;
      const double work = stored[s] ? 1 : costs[s].work;
      if (!stored[s] && costs[s].contraction != 0) {
        cost.contraction = JoinSets(cost.contraction, costs[s].contraction);
        cost.contraction_elements =
            std::max(cost.contraction_elements, std::min(here, costs[s].contraction_elements));
      }
      // What is repeated is computed once and kept.
      const double share = op == Op::kReduce || op == Op::kCat || op == Op::kShrink
                               ? 1
                               : std::min(1.0, CountOf(graph, s) / here);
      cost.work += op == Op::kGather && i == 0 ? work : work * share;
    }
    if (Is(op, kAlu)) cost.work += OpCost(op, machine);
    if (op == Op::kGather) cost.work += machine.gather;
    if (op == Op::kReduce) {
      ++cost.level;
      cost.work = (cost.work + 1) * FoldedExtent(u);
      if (IsContraction(u)) {
        cost.contraction = JoinSets(cost.contraction, id);
        cost.contraction_elements = here;
      }
    }
    cost.work = std::min(cost.work, kMostWork);
  }
  return costs;
}

}  // namespace telegrad
