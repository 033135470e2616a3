#include "engine/schedule/exact_values.h"

#include <algorithm>
#include <array>

#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

// The values with sums that a value's elements are selected from; 0 fills up. A selection from more
// than four keeps the first four.
using Origins = std::array<uint32_t, 4>;

void Unite(const Origins& from, Origins* to) {
  for (uint32_t value : from) {
    if (value == 0 || std::ranges::find(*to, value) != to->end()) continue;
    if (auto* free = std::ranges::find(*to, 0u); free != to->end()) *free = value;
  }
}

bool IsRoundedSum(UOp u) { return u.is(Op::kReduce) && RoundsInOrder(u.reduce_kind(), u.dtype()); }

// Every element of the result is one of a source, or stands for it one to one.
bool Selects(UOp u) {
  if (Is(u.op(), kMovement)) return true;
  switch (u.op()) {
    case Op::kDetach:
    case Op::kNeg:
    case Op::kCast:
    case Op::kBitcast:
    case Op::kMax:
    case Op::kWhere:
      return true;
    case Op::kReduce:
      return u.reduce_kind() == ReduceKind::kMax;
    default:
      return false;
  }
}

bool IsInMemory(Op op) { return op == Op::kContiguous || op == Op::kAfter || op == Op::kScatter; }

}  // namespace

std::vector<bool> ExactValues(const Graph& graph, const std::vector<uint32_t>& order) {
  const uint32_t size = order.empty() ? 0 : *std::ranges::max_element(order) + 1;
  std::vector<bool> exact(size, false), sums(size, false);
  std::vector<Origins> origins(size, Origins{});
  for (uint32_t id : order) {
    const UOp u = graph.at(id);
    if (IsInMemory(u.op())) continue;
    sums[id] = IsRoundedSum(u);
    for (uint32_t s : graph.src(id)) sums[id] = sums[id] || sums[s];
    if (!sums[id]) continue;
    if (Selects(u)) {
      // The condition of a WHERE is not selected from.
      for (int i = u.is(Op::kWhere) ? 1 : 0; i < u.num_src(); ++i) {
        Unite(origins[u.src(i).id()], &origins[id]);
      }
    } else {
      origins[id][0] = id;
    }
    const bool compares = u.is(Op::kCmpEq) || u.is(Op::kCmpNe) || u.is(Op::kCmpLt);
    if (!compares || u.src(0) == u.src(1)) continue;
    const Origins& right = origins[u.src(1).id()];
    for (uint32_t value : origins[u.src(0).id()]) {
      if (value != 0 && std::ranges::find(right, value) != right.end()) exact[value] = true;
    }
  }
  return exact;
}

}  // namespace telegrad
