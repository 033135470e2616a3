// Keys that a mask hides have a score of -inf, so a weight of 0 (online.h). Their blocks are left
// out where 0 times their values is 0. Where -inf is added to scores, these have to be numbers
// below infinity: sums of products of operands that threads find to be bounded (hidden_values.h).
#include "engine/lowering/shown_blocks.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/hidden_values.h"
#include "engine/lowering/mask_bounds.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

bool IsZero(UOp u) { return u.valid() && u.is_const() && u.const_word() == 0; }

// The keys of which some row sees one are below these numbers; invalid: all.
struct KeyEnds {
  UOp any, if_finite;  // whatever the values are, and where those that are hidden are finite
  // LOADs that scores are computed from: `if_finite` asks that these are bounded, too.
  std::vector<UOp> bounded = {};
};

// Whether hidden elements are -inf, if what is added to `bounded` is; see hidden_values.h.
bool IsHidden(Rewriter& b, UOp element, std::vector<UOp>* bounded) {
  if (IsMinusInf(element)) return true;
  if (!element.valid() || !element.is(Op::kAdd)) return false;
  absl::flat_hash_map<uint32_t, HiddenValue> known;
  std::vector<UOp> others;
  for (const uint32_t id : PostOrder(element)) {
    const UOp u = b.graph()->at(id);
    const auto of = [&](int i) { return i < u.num_src() ? known[u.src(i).id()] : HiddenValue{}; };
    if (u.is(Op::kLoad) && IsFloat(u.dtype())) {
      known[id] = {Hidden::kBounded, 1};
      bounded->push_back(u);
    } else if (u.is(Op::kReduce)) {
      known[id] = FoldHidden(u, of(0));
    } else if (!u.is(Op::kLoad) && !u.is(Op::kIndex) && !u.is(Op::kRange)) {
      known[id] = CombineHidden(b, u, of(0), of(1), of(2), &others);
    }
  }
  return others.empty() && known[element.id()].is == Hidden::kMinusInf;
}

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
      std::vector<UOp> bounded;
      if (!IsHidden(b, Substitute(b, element, hidden), &bounded)) continue;
      const auto bound = BoundOf(b, *mask, s.rows(), [&](UOp u) { return IsShared(s, u); });
      if (!bound) continue;
      const bool zero = IsZero(Substitute(b, s.sums[0].value, hidden)) && bounded.empty();
      UOp& end = zero ? ends.any : ends.if_finite;
      for (const UOp load : bounded) {
        if (std::ranges::find(ends.bounded, load) == ends.bounded.end()) {
          ends.bounded.push_back(load);
        }
      }
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
    UOp holds = AreFinite(shown, exist);
    for (const UOp load : ends.bounded) {
      const UOp bounded = IsBounded(load, shown, exist);
      if (!bounded.valid()) return exist;
      holds = b_.Make(Op::kAnd, {holds, bounded});
    }
    return b_.Make(Op::kWhere, {holds, shown, exist});
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
  // number else.
  UOp AreFinite(UOp first, UOp end) {
    const DType dtype = s_.maximum.dtype();
    const Elements all{w_.value, s_.key, w_.channel, first, end};
    const UOp nothing = Reduce(all, ReduceKind::kAdd, [&](UOp value) {
      return g_.Make(Op::kMul, {g_.ConstFloat(dtype, 0.0), value});
    });
    return b_.Make(Op::kCmpLt, {g_.ConstFloat(dtype, -1.0), nothing});
  }

  // Whether an operand of the scores is, of the keys of those blocks, or, where it depends on no
  // key, of all rows. Invalid where it depends on more than that and one range that is reduced.
  UOp IsBounded(UOp load, UOp first, UOp end) {
    const std::optional<Dependence> d = FindDependence(load);
    if (!d) return {};
    Elements all{load, {}, {}, g_.Index(0), g_.Index(1)};
    for (RangeSet open = d->of[load.id()]; open != 0; open &= open - 1) {
      const UOp range = d->ranges[static_cast<size_t>(std::countr_zero(open))];
      if (std::ranges::find(s_.shared, range) != s_.shared.end()) continue;
      UOp& to = range == s_.key || range == s_.row ? all.along : all.inner;
      if (to.valid() || !range.src(0).is_const()) return {};
      to = range;
    }
    if (!all.inner.valid()) return {};
    if (all.along == s_.key) {
      all.first = first;
      all.end = end;
    }
    const UOp most = Reduce(all, ReduceKind::kMax, [&](UOp value) {
      return b_.Make(Op::kMax, {value, b_.Make(Op::kNeg, {value})});
    });
    return b_.Make(Op::kCmpLt, {most, g_.ConstFloat(most.dtype(), kBoundedArgument)});
  }

  // Those of a LOAD: along the keys of the blocks from `first` to `end`, or all rows, or neither;
  // and along another range.
  struct Elements {
    UOp load, along, inner, first, end;
  };

  // Threads share the elements of a block, neighbouring ones those of a key.
  UOp Reduce(const Elements& all, ReduceKind kind, absl::FunctionRef<UOp(UOp)> body) {
    const DType dtype = s_.maximum.dtype();
    const int64_t size = SizeOf(all.inner), most = all.along.valid() ? SizeOf(all.along) : 1;
    const int64_t block = all.along == s_.key ? w_.block : most;
    int64_t lanes =
        std::min<int64_t>(target_.vector_bytes / ByteSize(all.load.dtype()), target_.vector_lanes);
    while (size % lanes != 0) lanes /= 2;
    int64_t threads = 1;
    for (const UOp range : w_.threads) threads *= SizeOf(range);
    const int64_t chunks = block * size / lanes, steps = (chunks + threads - 1) / threads;
    const UOp hidden = b_.Make(Op::kSub, {all.end, all.first});
    std::vector<UOp> over{g_.Range(next_range_++, AxisType::kReduce, hidden)};
    UOp chunk = RowMajor(b_, w_.threads);
    if (steps > 1) {
      over.push_back(g_.Range(next_range_++, AxisType::kReduce, g_.Index(steps)));
      chunk = Add(Mul(over.back(), threads), chunk);
    }
    const UOp row = g_.Index(size / lanes);
    UOp inner = Mul(b_.Make(Op::kFloorMod, {chunk, row}), lanes);
    if (lanes > 1) {
      over.push_back(g_.Range(next_range_++, AxisType::kVector, g_.Index(lanes)));
      inner = Add(inner, over.back());
    }
    const UOp in_block = b_.Make(Op::kFloorDiv, {chunk, row});
    const UOp along = Add(Mul(Add(all.first, over[0]), block), in_block);
    Replacements at{{all.inner.id(), {inner, {}}}};
    if (all.along.valid()) at[all.along.id()] = {along, {}};
    const UOp from = Substitute(b_, all.load.src(0), at);
    UOp exists = b_.Make(Op::kCmpLt, {along, g_.Index(most)});
    if (from.num_src() == 3) exists = g_.Make(Op::kAnd, {from.src(2), exists});
    UOp value = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {from.src(0), from.src(1), exists})});
    if (value.dtype() != dtype) value = b_.Make(Op::kCast, dtype, {value});
    std::vector<UOp> reduce{body(value)};
    reduce.insert(reduce.end(), over.begin(), over.end());
    reduce.insert(reduce.end(), w_.threads.begin(), w_.threads.end());
    return g_.Make(Op::kReduce, DType::kVoid, reduce, std::vector{static_cast<int64_t>(kind)});
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
