// A range that was joined of several (join.h) is taken apart where an index divides it. With r =
// lanes * q + i, i < lanes, the rules make an index that is linear in i where `lanes` divides what
// the range is divided by, and a gate that does not depend on i.
#include "engine/lowering/panel_order.h"

#include <algorithm>
#include <numeric>

#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"

namespace telegrad {
namespace {

// What divides every value of an integer; 0 divides 0 alone.
int64_t FactorOf(UOp value) {
  const Graph& g = *value.graph();
  absl::flat_hash_map<uint32_t, int64_t> factor;
  for (uint32_t id : PostOrder(value)) {
    const UOp u = g.at(id);
    const auto of = [&](int i) { return factor[u.src(i).id()]; };
    int64_t f = 1;
    if (u.is_const()) {
      f = u.const_word();
    } else if (u.is(Op::kAdd) || u.is(Op::kSub)) {
      f = std::gcd(of(0), of(1));
    } else if (u.is(Op::kMul)) {
      if (__builtin_mul_overflow(of(0), of(1), &f)) f = of(0);
    } else if (u.is(Op::kFloorMod)) {
      f = std::gcd(of(0), of(1));
    } else if (u.is(Op::kFloorDiv) && u.src(1).is_const() && of(1) != 0 && of(0) % of(1) == 0) {
      f = of(0) / of(1);
    }
    factor[id] = f;
  }
  return factor[value.id()];
}

bool IsBelow(UOp node, UOp root) {
  const std::vector<uint32_t> nodes = PostOrder(root);
  return std::ranges::find(nodes, node.id()) != nodes.end();
}

bool AreNeighbours(Rewriter& b, UOp address, UOp range, int64_t lanes) {
  Graph& g = *b.graph();
  const auto type = range.axis_type();
  // Numbers that no range of a kernel has.
  const UOp quotient = g.Range(-1, type, g.Index(SizeOf(range) / lanes));
  const UOp lane = g.Range(-2, type, g.Index(lanes));
  const UOp first = b.Make(Op::kMul, {quotient, g.Index(lanes)});
  const Replacements split{{range.id(), {b.Make(Op::kAdd, {first, lane}), {}}}};
  const UOp index = Substitute(b, address.src(1), split);
  if (!index.valid() || StrideOf(index, lane) != 1) return false;
  if (address.num_src() == 3) {
    const UOp gate = Substitute(b, address.src(2), split);
    if (!gate.valid() || IsBelow(lane, gate)) return false;
  }
  const UOp begin = Substitute(b, address.src(1), {{range.id(), {first, {}}}});
  return begin.valid() && FactorOf(begin) % lanes == 0;
}

}  // namespace

int64_t NeighboursAlong(Rewriter& b, UOp load, UOp range, int64_t count, int64_t most) {
  int64_t lanes = most;
  while (lanes > 1 && (count % lanes != 0 || SizeOf(range) % lanes != 0 ||
                       !AreNeighbours(b, load.src(0), range, lanes))) {
    lanes /= 2;
  }
  return std::max<int64_t>(lanes, 1);
}

int64_t PieceOf(UOp load, const PanelSide& side, const PanelSide& reduced, int64_t most) {
  Graph scratch;
  Budget budget;
  Rewriter b(&scratch, {&kAlgebra, &kDivMod}, &budget);
  absl::flat_hash_map<uint32_t, UOp> made;
  std::vector<UOp> src;
  for (const uint32_t id : PostOrder(load)) {
    const UOp u = load.graph()->at(id);
    src.clear();
    for (const uint32_t s : u.src_ids()) src.push_back(made[s]);
    made[id] =
        scratch.Make(u.op(), u.dtype(), src, std::vector<int64_t>(u.arg().begin(), u.arg().end()));
  }
  const auto t = made.find(side.range.id()), k = made.find(reduced.range.id());
  if (t == made.end() || k == made.end()) return 1;
  const UOp copy = made[load.id()];
  const bool by_k = RunsAlongReduced(b, copy, t->second, k->second);
  return NeighboursAlong(b, copy, by_k ? k->second : t->second, by_k ? reduced.tile : side.tile,
                         most);
}

bool RunsAlongReduced(Rewriter& b, UOp load, UOp tile, UOp reduced) {
  constexpr int64_t kPair = 2;
  const auto rank = [&](UOp range) {
    if (StrideOf(load.src(0).src(1), range) == 1) return 2;
    return NeighboursAlong(b, load, range, SizeOf(range), kPair) == kPair ? 1 : 0;
  };
  return rank(reduced) > rank(tile);
}

}  // namespace telegrad
