// A reduction over the first iterations and one over the others are combined where the one was. Of
// a loop, each part has the kernel's nests for itself.
#include "engine/lowering/moves/peel.h"

#include <vector>

#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

// `reduce` over fewer ranges, in the order in which it has them; its body alone if none is left.
UOp Refold(Rewriter& b, UOp reduce, UOp range, const Replacement& with) {
  std::vector<UOp> src{Substitute(b, reduce.src(0), {{range.id(), with}})};
  for (int i = 1; i < reduce.num_src(); ++i) {
    if (reduce.src(i) != range) {
      src.push_back(reduce.src(i));
    } else {
      src.insert(src.end(), with.ranges.begin(), with.ranges.end());
    }
  }
  if (!src[0].valid() || src.size() == 1) return src[0];
  return b.Make(Op::kReduce, DType::kVoid, src, std::vector<int64_t>{ToWord(reduce.reduce_kind())});
}

}  // namespace

UOp Peel(Rewriter& b, UOp sink, UOp range, int64_t amount) {
  constexpr Op kCombine[] = {Op::kAdd, Op::kMul, Op::kMax};  // by ReduceKind
  Graph& g = *b.graph();
  const int64_t next = NextRangeId(sink), rest = SizeOf(range) - amount;
  const auto type = range.axis_type();
  Replacement first{g.Index(0), {}}, last{g.Index(amount), {}};
  if (amount > 1) {
    first.ranges.push_back(g.Range(next, type, g.Index(amount)));
    first.value = first.ranges[0];
  }
  if (rest > 1) {
    last.ranges.push_back(g.Range(next + 1, type, g.Index(rest)));
    last.value = b.Make(Op::kAdd, {last.ranges[0], g.Index(amount)});
  }
  if (type == AxisType::kLoop) {
    std::vector<UOp> nests;
    for (const Replacement& part : {first, last}) {
      const UOp copy = Substitute(b, sink, {{range.id(), part}});
      for (int i = 0; copy.valid() && i < copy.num_src(); ++i) nests.push_back(copy.src(i));
    }
    return g.Make(Op::kSink, DType::kVoid, nests);
  }
  Replacements with;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = g.at(id);
    if (!u.is(Op::kReduce)) continue;
    bool folds = false;
    for (int i = 1; i < u.num_src(); ++i) folds |= u.src(i) == range;
    if (!folds) continue;
    const UOp x = Refold(b, u, range, first), y = Refold(b, u, range, last);
    if (!x.valid() || !y.valid()) return {};
    with[id] = {b.Make(kCombine[ToWord(u.reduce_kind())], {x, y}), {}};
  }
  return Substitute(b, sink, with);
}

}  // namespace telegrad
