#include "engine/lowering/gated_indices.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/lowering/activity.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

// What is from 0 to n - 1 where the gate holds: n, by node.
absl::flat_hash_map<uint32_t, int64_t> BoundsIn(UOp gate) {
  absl::flat_hash_set<uint32_t> positive;
  absl::flat_hash_map<uint32_t, int64_t> bounds;
  for (const UOp c : ConditionsIn(gate)) {
    const UOp x = c.src(0), y = c.src(1);
    if (!IsInt(x.dtype())) continue;
    if (x.is_const() && x.const_word() >= -1 && IsSigned(x.dtype())) positive.insert(y.id());
    if (!y.is_const() || x.is_const()) continue;
    const auto [known, is_new] = bounds.try_emplace(x.id(), y.const_word());
    if (!is_new) known->second = std::min(known->second, y.const_word());
  }
  absl::erase_if(bounds, [&](const auto& bound) { return !positive.contains(bound.first); });
  return bounds;
}

UOp WithinBounds(Rewriter& b, UOp index, const absl::flat_hash_map<uint32_t, int64_t>& bounds) {
  return Rebuild(*b.graph(), index, [&](UOp u, std::vector<UOp>* src) {
    const bool divides = u.is(Op::kFloorMod) || u.is(Op::kFloorDiv);
    if (divides && u.src(1).is_const()) {
      const auto bound = bounds.find(u.src(0).id());
      if (bound != bounds.end() && bound->second <= u.src(1).const_word()) {
        return u.is(Op::kFloorMod) ? (*src)[0] : b.graph()->Const(u.dtype(), 0);
      }
    }
    return WithSources(*b.graph(), u, *src);
  });
}

// Whether some gate bounds what is divided. Most kernels have none, and stay as they are.
bool BoundsDividends(UOp sink) {
  const std::vector<uint32_t> order = PostOrder(sink);
  absl::flat_hash_map<uint32_t, int64_t> divisors;  // the largest, by dividend
  for (const uint32_t id : order) {
    const UOp u = sink.graph()->at(id);
    if ((!u.is(Op::kFloorMod) && !u.is(Op::kFloorDiv)) || !u.src(1).is_const()) continue;
    int64_t& largest = divisors[u.src(0).id()];
    largest = std::max(largest, u.src(1).const_word());
  }
  if (divisors.empty()) return false;
  return std::ranges::any_of(order, [&](uint32_t id) {
    const UOp u = sink.graph()->at(id);
    if (!u.is(Op::kIndex) || u.num_src() != 3) return false;
    return std::ranges::any_of(BoundsIn(u.src(2)), [&](const auto& bound) {
      const auto divisor = divisors.find(bound.first);
      return divisor != divisors.end() && bound.second <= divisor->second;
    });
  });
}

}  // namespace

UOp SimplifyGatedIndices(Rewriter& b, UOp sink) {
  if (!BoundsDividends(sink)) return sink;
  return Rebuild(*b.graph(), sink, [&](UOp u, std::vector<UOp>* src) {
    const UOp copy = WithSources(*b.graph(), u, *src);
    if (!copy.is(Op::kIndex) || copy.num_src() != 3) return copy;
    const auto bounds = BoundsIn(copy.src(2));
    if (bounds.empty()) return copy;
    const UOp index = WithinBounds(b, copy.src(1), bounds);
    if (!index.valid() || index == copy.src(1)) return copy;
    return b.graph()->Make(Op::kIndex, {copy.src(0), index, copy.src(2)});
  });
}

}  // namespace telegrad
