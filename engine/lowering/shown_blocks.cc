// Keys that a mask hides have a score of -inf, so a weight of 0 (online.h). Their blocks are left
// out where 0 times their values is 0.
#include "engine/lowering/shown_blocks.h"

#include <algorithm>

#include "engine/lowering/mask_bounds.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

bool IsZero(UOp u) { return u.valid() && u.is_const() && u.const_word() == 0; }

// The keys of which some row sees one are below these numbers; invalid: all.
struct KeyEnds {
  UOp any, if_finite;  // whatever the values are, and where those that are hidden are finite
};

UOp Least(Rewriter& b, UOp x, UOp y) {
  const UOp minus = b.graph()->Index(-1);
  const UOp back = b.Make(Op::kMul, {x, minus});
  const UOp most = b.Make(Op::kMax, {back, b.Make(Op::kMul, {y, minus})});
  return b.Make(Op::kMul, {most, minus});
}

bool IsWritten(const CoupledSums& sums, UOp argument) {
  return std::ranges::any_of(sums.roots, [&](UOp root) {
    while (root.is(Op::kEnd)) root = root.src(0);
    return root.is(Op::kStore) && Memory(root.src(0)) == argument;
  });
}

// Whether it is the same for all threads: it depends on nothing but loops around all of them, and
// numbers from arguments that the kernel does not write.
bool IsShared(const CoupledSums& sums, UOp u) {
  const std::vector<uint32_t> order = PostOrder(u);
  return std::ranges::all_of(order, [&](uint32_t id) {
    const UOp s = u.graph()->at(id);
    if (s.is(Op::kReduce) || s.is(Op::kAfter) || s.is(Op::kBuffer)) return false;
    if (s.is(Op::kParam)) return !IsWritten(sums, s);
    return !s.is(Op::kRange) || std::ranges::find(sums.shared, s) != sums.shared.end();
  });
}

KeyEnds FindEnds(Rewriter& b, const CoupledSums& s) {
  KeyEnds ends;
  const UOp element = Substitute(b, s.element, {{s.score.id(), {s.scores, {}}}});
  for (uint32_t id : PostOrder(element)) {
    const UOp compare = element.graph()->at(id);
    if (!compare.is(Op::kCmpLt)) continue;
    for (const bool hides : {false, true}) {
      const auto mask = PositionMask::Of(compare, hides, s.key, s.row);
      if (!mask || mask->along >= 0) continue;
      const Replacements hidden{{id, {b.graph()->ConstWord(DType::kBool, hides), {}}}};
      if (!IsMinusInf(Substitute(b, element, hidden))) continue;
      const auto bound = BoundOf(b, *mask, s.rows(), [&](UOp u) { return IsShared(s, u); });
      if (!bound) continue;
      UOp& end = IsZero(Substitute(b, s.sums[0].value, hidden)) ? ends.any : ends.if_finite;
      end = end.valid() ? Least(b, end, bound->end) : bound->end;
    }
  }
  return ends;
}

class BlockCounter {
 public:
  BlockCounter(Rewriter& b, const Target& target, const BlockWalk& walk, int64_t* next_range)
      : b_(b),
        g_(*b.graph()),
        target_(target),
        w_(walk),
        s_(walk.sums),
        next_range_(*next_range),
        keys_(SizeOf(s_.key)),
        count_((keys_ + walk.block - 1) / walk.block) {}

  UOp Run() {
    const UOp all = g_.Index(count_);
    if (count_ == 1) return all;
    const KeyEnds ends = FindEnds(b_, s_);
    const UOp exist = ends.any.valid() ? BlocksBelow(ends.any) : all;
    if (!ends.if_finite.valid() || !w_.value.valid()) return exist;
    UOp shown = BlocksBelow(ends.if_finite);
    if (ends.any.valid()) shown = Least(b_, shown, exist);
    return b_.Make(Op::kWhere, {AreFinite(shown, exist), shown, exist});
  }

 private:
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t y) { return b_.Make(Op::kMul, {x, g_.Index(y)}); }

  // At least one.
  UOp BlocksBelow(UOp end) {
    const UOp some = b_.Make(Op::kMax, {end, g_.Index(1)});
    const UOp up = Add(Least(b_, some, g_.Index(keys_)), g_.Index(w_.block - 1));
    return b_.Make(Op::kFloorDiv, {up, g_.Index(w_.block)});
  }

  // Whether all values of the blocks from `first` to `end` are: the sum of 0 times each is no
  // number else. Threads share the elements of a block, neighbouring ones those of a key.
  UOp AreFinite(UOp first, UOp end) {
    const DType dtype = s_.maximum.dtype();
    const int64_t size = SizeOf(w_.channel);
    int64_t lanes =
        std::min<int64_t>(target_.vector_bytes / ByteSize(w_.value.dtype()), target_.vector_lanes);
    while (size % lanes != 0) lanes /= 2;
    int64_t threads = 1;
    for (const UOp range : w_.threads) threads *= SizeOf(range);
    const int64_t chunks = w_.block * size / lanes, steps = (chunks + threads - 1) / threads;
    const UOp hidden = b_.Make(Op::kSub, {end, first});
    std::vector<UOp> over{g_.Range(next_range_++, AxisType::kReduce, hidden)};
    UOp chunk = RowMajor(b_, w_.threads);
    if (steps > 1) {
      over.push_back(g_.Range(next_range_++, AxisType::kReduce, g_.Index(steps)));
      chunk = Add(Mul(over.back(), threads), chunk);
    }
    const UOp row = g_.Index(size / lanes);
    UOp channel = Mul(b_.Make(Op::kFloorMod, {chunk, row}), lanes);
    if (lanes > 1) {
      over.push_back(g_.Range(next_range_++, AxisType::kVector, g_.Index(lanes)));
      channel = Add(channel, over.back());
    }
    const UOp in_block = b_.Make(Op::kFloorDiv, {chunk, row});
    const UOp key = Add(Mul(Add(first, over[0]), w_.block), in_block);
    const UOp from = Substitute(b_, w_.value.src(0),
                                {{s_.key.id(), {key, {}}}, {w_.channel.id(), {channel, {}}}});
    UOp exists = b_.Make(Op::kCmpLt, {key, g_.Index(keys_)});
    if (from.num_src() == 3) exists = g_.Make(Op::kAnd, {from.src(2), exists});
    UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {from.src(0), from.src(1), exists})});
    if (value.dtype() != dtype) value = b_.Make(Op::kCast, dtype, {value});
    std::vector<UOp> sum{g_.Make(Op::kMul, {g_.ConstFloat(dtype, 0.0), value})};
    sum.insert(sum.end(), over.begin(), over.end());
    sum.insert(sum.end(), w_.threads.begin(), w_.threads.end());
    const UOp nothing = g_.Make(Op::kReduce, DType::kVoid, sum,
                                std::vector{static_cast<int64_t>(ReduceKind::kAdd)});
    return b_.Make(Op::kCmpLt, {g_.ConstFloat(dtype, -1.0), nothing});
  }

  Rewriter& b_;
  Graph& g_;
  const Target& target_;
  const BlockWalk& w_;
  const CoupledSums& s_;
  int64_t& next_range_;
  const int64_t keys_, count_;  // count_: blocks
};

}  // namespace

UOp BlocksShown(Rewriter& b, const Target& target, const BlockWalk& walk, int64_t* next_range) {
  return BlockCounter(b, target, walk, next_range).Run();
}

UOp KeysShown(Rewriter& b, const CoupledSums& sums) {
  const UOp end = FindEnds(b, sums).any;
  return end.valid() ? Least(b, end, b.graph()->Index(SizeOf(sums.key))) : end;
}

}  // namespace telegrad
