#include "engine/lowering/moves/close.h"

#include <algorithm>
#include <vector>

#include "engine/lowering/block.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/workgroup.h"

namespace telegrad {
namespace {

class Closer {
 public:
  Closer(Rewriter& b, std::span<const SplitRange> splits, std::span<const RangeMove> moves,
         const Parallel& parallel)
      : b_(b), g_(*b.graph()), splits_(splits), moves_(moves), parallel_(parallel.ranges) {}

  UOp Run(UOp sink) {
    FindBlocks();
    FindOrder();
    sink = Close(sink);
    return sink.valid() && !blocks_.empty() ? FoldInBlocks(b_, sink, blocks_, outside_) : sink;
  }

 private:
  const SplitRange& SplitOf(UOp range) const {
    return *std::ranges::find(splits_, range, &SplitRange::range);
  }

  void MoveOut(UOp part) {
    const bool loop = !IsType(part, AxisType::kUpcast) && !IsType(part, AxisType::kVector);
    if (loop && std::ranges::find(order_, part) == order_.end()) order_.push_back(part);
  }

  // Around a reduction's blocks are the loops that are moved before it, and what is left of loops
  // in parts.
  void FindBlocks() {
    for (const SplitRange& s : splits_) {
      if (!s.block || s.count == 1) continue;
      (IsType(s.range, AxisType::kReduce) ? blocks_ : outside_).push_back(s.outer);
    }
    if (blocks_.empty()) return;
    for (const RangeMove& m : moves_) {
      if (m.kind == Move::Kind::kBlock && IsType(m.range, AxisType::kReduce)) break;
      const bool moved = m.kind == Move::Kind::kThread || m.kind == Move::Kind::kOuter;
      if (moved) MoveOut(SplitOf(m.range).outer);
    }
    for (UOp part : outside_) MoveOut(part);
    outside_ = order_;
  }

  void FindOrder() {
    // What workers share stands together, outside of the parts of those ranges.
    for (const RangeMove& m : moves_) {
      if (m.kind == Move::Kind::kThread) MoveOut(SplitOf(m.range).outer);
    }
    for (const Move::Kind kind : {Move::Kind::kThread, Move::Kind::kOuter}) {
      for (const RangeMove& m : moves_) {
        if (m.kind != kind) continue;
        for (UOp part : SplitOf(m.range).with.ranges) MoveOut(part);
      }
    }
  }

  // END(END(x, inner...), outer...) -> END(x, around..., outer..., inner...), the loops in order.
  UOp CloseNest(UOp nest, std::span<const UOp> around) {
    std::vector<UOp> loops;
    for (; nest.is(Op::kEnd); nest = nest.src(0)) {
      for (int i = 1; i < nest.num_src(); ++i) {
        if (around.empty() || !IsParallel(nest.src(i))) loops.push_back(nest.src(i));
      }
    }
    std::ranges::stable_sort(
        loops, {}, [&](UOp loop) { return std::ranges::find(order_, loop) - order_.begin(); });
    std::vector<UOp> src{nest};
    src.insert(src.end(), around.begin(), around.end());
    src.insert(src.end(), loops.begin(), loops.end());
    return src.size() == 1 ? nest : g_.Make(Op::kEnd, DType::kVoid, src);
  }

  // An END of an END becomes one, and one without ranges none.
  UOp Close(UOp sink) {
    return Rebuild(g_, sink, [&](UOp u, std::vector<UOp>* src) {
      if (u.is(Op::kSink)) {
        for (UOp& root : *src) root = CloseNest(root, parallel_);
      }
      const bool none = u.is(Op::kEnd) && src->size() == 1;
      const UOp copy = none ? src->front() : WithSources(g_, u, *src);
      return copy.is(Op::kEnd) ? CloseNest(copy, {}) : copy;
    });
  }

  Rewriter& b_;
  Graph& g_;
  const std::span<const SplitRange> splits_;
  const std::span<const RangeMove> moves_;
  const std::span<const UOp> parallel_;
  std::vector<UOp> order_;             // of loops that moves have taken out of others
  std::vector<UOp> blocks_, outside_;  // of reductions, and the loops around those
};

}  // namespace

UOp CloseLoops(Rewriter& b, UOp sink, std::span<const SplitRange> splits,
               std::span<const RangeMove> moves, const Parallel& parallel) {
  return Closer(b, splits, moves, parallel).Run(sink);
}

}  // namespace telegrad
