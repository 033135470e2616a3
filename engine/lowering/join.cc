#include "engine/lowering/join.h"

#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {

UOp JoinRanges(Rewriter& b, UOp sink, UOp outer, UOp inner) {
  Graph& g = *b.graph();
  const int64_t size = SizeOf(inner);
  const UOp joined = g.Range(inner.range_id(), inner.axis_type(), g.Index(SizeOf(outer) * size));
  const Replacement quotient{b.Make(Op::kFloorDiv, {joined, g.Index(size)}), {}};
  const Replacement remainder{b.Make(Op::kFloorMod, {joined, g.Index(size)}), {joined}};
  Replacements with{{outer.id(), quotient}, {inner.id(), remainder}};
  // With the outer range held at 0, the inner one alone walks the whole product: its stride is the
  // same.
  const Replacements through{{outer.id(), {g.Index(0), {}}}, {inner.id(), {joined, {}}}};
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (!u.is(Op::kIndex)) continue;
    const UOp index = u.src(1);
    const auto x = StrideOf(index, outer), y = StrideOf(index, inner);
    if (!x || !y || *x == 0 || *x != *y * size) continue;
    const UOp joint = Substitute(b, index, through);
    if (!joint.valid()) return joint;
    with[index.id()] = {joint, {}};
  }
  return Substitute(b, sink, with);
}

bool AreClosedTogether(UOp sink, UOp outer, UOp inner) {
  const Graph& g = *sink.graph();
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (!u.is(Op::kEnd) && !u.is(Op::kReduce)) continue;
    bool first = false, second = false;
    for (int i = 1; i < u.num_src(); ++i) {
      first |= u.src(i) == outer;
      second |= u.src(i) == inner;
    }
    if (first != second) return false;
  }
  return true;
}

}  // namespace telegrad
