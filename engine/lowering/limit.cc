// What is known of a value at a hidden position of its row, by induction over the expression:
//
//   kMinusInf  -inf: a masked score
//   kZero      0, an exponential of it less the row's maximum, over the row's sum
//   kTop       the row's maximum, the same at all positions. If it is -inf or no number, the row's
//              results are no numbers, or all of its exponentials are 0, with the hidden ones or
//              without: one of them at least is left
//   kSum       a positive sum over the row, or again one of a row whose results are no numbers
//
// A reduction of hidden values then is one of the maximum's identity, of zeros, or of products of
// zero. The bounds are those of mask_bounds.h.
#include "engine/lowering/limit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/mask_bounds.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr int64_t kMostInBlock = 64, kLeastInBlock = 16, kBlocks = 8;

enum class Hidden { kAny, kPositive, kMinusInf, kZero, kTop, kMinusTop, kSum };

class Limiter {
 public:
  Limiter(Rewriter& b, UOp sink, Dependence d)
      : b_(b), g_(*b.graph()), sink_(sink), order_(PostOrder(sink)), d_(std::move(d)) {}

  UOp Run(int64_t multiple) {
    if (!FindRows() || !FindMask() || !CheckUses()) return sink_;
    int64_t block = 0;
    const int64_t most = std::clamp(keys_ / kBlocks, kLeastInBlock, kMostInBlock);
    for (int64_t n = kLeastInBlock; n <= std::min(kMostInBlock, keys_ / 2); ++n) {
      if (keys_ % n == 0 && n % multiple == 0 && (n <= most || block == 0)) block = n;
    }
    // A last block that is not whole would change which terms are added together.
    if (block == 0 && multiple == 1 && keys_ >= 2 * kLeastInBlock) {
      block = most / kLeastInBlock * kLeastInBlock;
    }
    if (block == 0) return sink_;
    return Rebuild(block);
  }

 private:
  UOp BufferOf(UOp access) const {
    const UOp memory = Memory(access.src(0));
    return memory.is(Op::kBuffer) ? memory : UOp();
  }

  // The range along the row of an access to a kept buffer; invalid if there is none.
  UOp KeyOf(UOp access) const {
    const UOp index = access.src(0).src(1);
    if (access.src(0).num_src() != 2) return {};
    for (const UOp range : d_.ranges) {
      if (!d_.Depends(index, range) || !range.src(0).is_const()) continue;
      if (SizeOf(range) == keys_ && StrideOf(index, range) == rows_) return range;
    }
    return {};
  }
  // That over the rows; invalid where there is one.
  UOp RowOf(UOp access) const {
    const UOp index = access.src(0).src(1);
    for (const UOp range : d_.ranges) {
      if (rows_ > 1 && d_.Depends(index, range) && SizeOf(range) == rows_ &&
          StrideOf(index, range) == 1 && range != KeyOf(access)) {
        return range;
      }
    }
    return {};
  }

  // The kept rows: how many, and how long they are.
  bool FindRows() {
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kStore) || !BufferOf(u).valid()) continue;
      const int64_t elements = BufferOf(u).arg(2);
      for (const UOp range : d_.ranges) {
        if (scores_.valid() || !range.src(0).is_const()) continue;
        const std::optional<int64_t> stride = StrideOf(u.src(0).src(1), range);
        if (!stride || *stride < 1 || *stride * SizeOf(range) != elements) continue;
        rows_ = *stride;
        keys_ = SizeOf(range);
        scores_ = u;
      }
      if (!scores_.valid() || elements != keys_ * rows_ || !KeyOf(u).valid()) return false;
      stores_.push_back(u);
    }
    return scores_.valid();
  }

  // Which positions of a row comparisons hide, as bounds of the others.
  bool FindMask() {
    const auto is_outer = [&](UOp u) { return IsOuter(u); };
    for (const MaskBound& bound :
         MaskBoundsOf(b_, scores_.src(1), RowOf(scores_), KeyOf(scores_), is_outer)) {
      if (bound.end.valid()) end_ = end_.valid() ? Least(end_, bound.end) : bound.end;
      if (bound.first.valid()) {
        first_ = first_.valid() ? b_.Make(Op::kMax, {first_, bound.first}) : bound.first;
      }
    }
    return end_.valid() || first_.valid();
  }

  // Whether it depends on nothing but loops that all nests are in.
  bool IsOuter(UOp u) const {
    RangeSet outer = ~RangeSet{0};
    for (int i = 0; i < sink_.num_src(); ++i) {
      RangeSet closed = 0;
      const UOp end = sink_.src(i);
      for (int r = 1; end.is(Op::kEnd) && r < end.num_src(); ++r) {
        closed |= Bit(d_.IndexOf(end.src(r)));
      }
      outer &= closed;
    }
    for (uint32_t id : PostOrder(u)) {
      if (g_.op(id) == Op::kLoad || g_.op(id) == Op::kReduce) return false;
    }
    return (d_.of[u.id()] & ~outer) == 0;
  }

  UOp Least(UOp x, UOp y) {
    const UOp minus = g_.Index(-1);
    const UOp most =
        b_.Make(Op::kMax, {b_.Make(Op::kMul, {x, minus}), b_.Make(Op::kMul, {y, minus})});
    return b_.Make(Op::kMul, {most, minus});
  }

  // The state of `root` where the position along `key` is hidden; nothing is hidden along an
  // invalid one.
  Hidden StateOf(UOp root, UOp key) {
    absl::flat_hash_map<uint32_t, Hidden> state;
    std::vector<std::pair<uint32_t, bool>> stack{{root.id(), false}};
    while (!stack.empty()) {
      const auto [id, ready] = stack.back();
      stack.pop_back();
      if (state.contains(id)) continue;
      const UOp u = g_.at(id);
      if (u.is(Op::kLoad) || u.is(Op::kRange) || u.is(Op::kReduce)) {
        state[id] = StateOfLeaf(u, key);
        continue;
      }
      if (!ready) {
        stack.emplace_back(id, true);
        for (uint32_t s : u.src_ids()) stack.emplace_back(s, false);
        continue;
      }
      const auto of = [&](int i) { return i < u.num_src() ? state[u.src(i).id()] : Hidden::kAny; };
      state[id] = Combine(u, of(0), of(1), of(2));
    }
    return state[root.id()];
  }

  Hidden StateOfLeaf(UOp u, UOp key) {
    if (u.is(Op::kLoad) && key.valid() && BufferOf(u).valid() && KeyOf(u) == key) {
      const auto it = buffers_.find(BufferOf(u).id());
      return it == buffers_.end() ? Hidden::kAny : it->second;
    }
    const auto it = folds_.find(u.id());
    return it == folds_.end() ? Hidden::kAny : it->second;
  }

  static Hidden Combine(UOp u, Hidden x, Hidden y, Hidden z) {
    using enum Hidden;
    switch (u.op()) {
      case Op::kConst: {
        if (!IsFloat(u.dtype())) return kAny;
        const double value = ScalarAsDouble(u.dtype(), u.const_word());
        if (value == 0) return kZero;
        if (value > 0 && std::isfinite(value)) return kPositive;
        return IsMinusInf(u) ? kMinusInf : kAny;
      }
      case Op::kCast:
        return IsFloat(u.dtype()) && IsFloat(u.src(0).dtype()) && x != kPositive ? x : kAny;
      case Op::kNeg:
        return x == kTop ? kMinusTop : kAny;
      case Op::kSub:
        return x == kMinusInf && y == kTop ? kMinusInf : kAny;
      case Op::kAdd:
        if (x == kMinusTop) std::swap(x, y);
        return x == kMinusInf && y == kMinusTop ? kMinusInf : kAny;
      case Op::kMul:
        if (x == kPositive || x == kSum) std::swap(x, y);
        if (y == kPositive && x != kAny) return x;
        return x == kZero && y == kSum ? kZero : kAny;
      case Op::kFDiv:
        return x == kZero && (y == kSum || y == kPositive) ? kZero : kAny;
      case Op::kRecip:
        return x == kSum ? kSum : kAny;
      case Op::kExp2:
        return x == kMinusInf ? kZero : kAny;
      case Op::kWhere:  // a maximum or sum that is replaced where it would not do
        if (y == z) return y;
        if ((y == kTop && (z == kZero || z == kPositive)) || (z == kTop && y == kPositive) ||
            (z == kTop && y == kZero)) {
          return kTop;
        }
        return (y == kSum && z == kPositive) || (z == kSum && y == kPositive) ? kSum : kAny;
      default:
        return kAny;
    }
  }

  // The other factor where the body is a product of 0 and something that the rows share.
  UOp SharedFactor(UOp reduce, UOp key) {
    const UOp body = reduce.src(0);
    if (!body.is(Op::kMul)) return {};
    for (int i = 0; i < 2; ++i) {
      const UOp other = body.src(1 - i);
      if (StateOf(body.src(i), key) != Hidden::kZero) continue;
      UOp row;
      for (uint32_t id : PostOrder(body.src(i))) {
        const UOp u = g_.at(id);
        if (u.is(Op::kLoad) && BufferOf(u).valid() && KeyOf(u) == key) row = RowOf(u);
      }
      if (row.valid() ? !d_.Depends(other, row) : rows_ == 1) return other;
    }
    return {};
  }

  // Whether all that is done with the rows does without what is hidden. Sources come first in the
  // order, so what a nest reads is known by then.
  bool CheckUses() {
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (u.is(Op::kStore)) {
        if (!BufferOf(u).valid()) continue;
        const UOp key = KeyOf(u);
        const Hidden state = u == scores_ ? Hidden::kMinusInf : StateOf(u.src(1), key);
        if (state != Hidden::kMinusInf && state != Hidden::kZero) return false;
        if (!buffers_.emplace(BufferOf(u).id(), state).second) return false;
        handled_.push_back(key);
      } else if (u.is(Op::kReduce)) {
        if (!Fold(u)) return false;
      }
    }
    return std::ranges::all_of(order_, [&](uint32_t id) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kLoad) || !BufferOf(u).valid()) return true;
      const UOp key = KeyOf(u);
      return key.valid() && std::ranges::find(handled_, key) != handled_.end();
    });
  }

  bool Fold(UOp reduce) {
    UOp key;
    for (uint32_t id : PostOrder(reduce.src(0))) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kLoad) || !BufferOf(u).valid()) continue;
      const UOp of = KeyOf(u);
      for (int i = 1; of.valid() && i < reduce.num_src(); ++i) {
        if (reduce.src(i) == of) key = of;
      }
    }
    if (!key.valid()) return true;  // one of something else
    if (reduce.num_src() != 2) return false;
    const auto kind = static_cast<ReduceKind>(reduce.arg(0));
    const Hidden state = StateOf(reduce.src(0), key);
    if (kind == ReduceKind::kMax && state == Hidden::kMinusInf) {
      folds_[reduce.id()] = Hidden::kTop;
    } else if (kind == ReduceKind::kAdd && state == Hidden::kZero) {
      folds_[reduce.id()] = Hidden::kSum;
    } else if (const UOp other = kind == ReduceKind::kAdd ? SharedFactor(reduce, key) : UOp();
               other.valid()) {
      products_.emplace_back(reduce, other);
    } else {
      return false;
    }
    handled_.push_back(key);
    return true;
  }

  // Whether 0 times the value is 0 in all inner loops: the sum of it is no number else.
  UOp IsFinite(UOp value) {
    Replacements fresh;
    const UOp zero = g_.ConstFloat(value.dtype(), 0.0);
    std::vector<UOp> src{UOp()};
    for (const UOp range : d_.ranges) {
      if (!d_.Depends(value, range) || IsOuter(range)) continue;
      src.push_back(g_.Range(next_++, AxisType::kReduce, range.src(0)));
      fresh[range.id()] = {src.back(), {src.back()}};
    }
    src[0] = g_.Make(Op::kMul, {zero, Substitute(b_, value, fresh)});
    const UOp sum = g_.Make(Op::kReduce, DType::kVoid, src,
                            std::vector<int64_t>{static_cast<int64_t>(ReduceKind::kAdd)});
    return g_.Make(Op::kCmpLt, {g_.ConstFloat(value.dtype(), -1.0), sum});
  }

  // Where blocks do not divide a row, the last one has positions beyond it. They have a score of
  // -inf, are loaded from the last position, and what is weighted is 0 there. The memory has room
  // for them.
  void FillRows(Replacements* with) {
    for (const auto& [id, state] : buffers_) {
      const UOp buffer = g_.at(id);
      (*with)[id] = {
          g_.Make(Op::kBuffer, buffer.dtype(), {}, {buffer.arg(0), buffer.arg(1), padded_ * rows_}),
          {}};
    }
    for (const UOp key : handled_) FillRow(key, with);
    const UOp value = Substitute(b_, scores_.src(1), *with);
    const UOp lowest = g_.ConstFloat(value.dtype(), -std::numeric_limits<double>::infinity());
    const UOp inside = IsInside(with->at(KeyOf(scores_).id()).value);
    (*with)[scores_.id()] = {g_.Make(Op::kStore, {Substitute(b_, scores_.src(0), *with),
                                                  b_.Make(Op::kWhere, {inside, value, lowest})}),
                             {}};
  }

  // For one of the ranges along the rows.
  void FillRow(UOp key, Replacements* with) {
    const UOp position = with->at(key.id()).value;
    Replacements clamped = *with;
    clamped[key.id()].value = Least(position, g_.Index(keys_ - 1));
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      const bool argument = u.is(Op::kLoad) && Memory(u.src(0)).is(Op::kParam);
      if (argument && d_.Depends(u, key)) (*with)[id] = {Substitute(b_, u, clamped), {}};
    }
    for (const auto& [reduce, other] : products_) {
      if (reduce.src(1) != key) continue;
      const UOp value = Substitute(b_, other, *with);
      const UOp zero = g_.ConstFloat(other.dtype(), 0.0);
      (*with)[other.id()] = {b_.Make(Op::kWhere, {IsInside(position), value, zero}), {}};
    }
  }
  UOp IsInside(UOp position) { return b_.Make(Op::kCmpLt, {position, g_.Index(keys_)}); }

  UOp Rebuild(int64_t block) {
    const int64_t blocks = (keys_ + block - 1) / block;
    padded_ = blocks * block;
    const UOp last = g_.Index(blocks - 1);
    const auto clamp = [&](UOp x, int64_t lo, int64_t hi) {
      return Least(b_.Make(Op::kMax, {x, g_.Index(lo)}), g_.Index(hi));
    };
    UOp first = g_.Index(0), end = g_.Index(blocks);
    if (first_.valid()) {
      first = b_.Make(Op::kFloorDiv, {clamp(first_, 0, keys_ - 1), g_.Index(block)});
    }
    if (end_.valid()) {
      const UOp up = b_.Make(Op::kAdd, {clamp(end_, 1, keys_), g_.Index(block - 1)});
      end = b_.Make(Op::kFloorDiv, {up, g_.Index(block)});
    }
    const UOp count = b_.Make(Op::kMax, {b_.Make(Op::kSub, {end, first}), g_.Index(1)});
    const UOp hidden = b_.Make(Op::kSub, {g_.Index(blocks), count});

    for (const UOp range : d_.ranges) next_ = std::max(next_, range.arg(0) + 1);
    // `at`: the number of the block, from how many there were before it.
    const auto split = [&](UOp key, UOp many, auto at) {
      const auto type = static_cast<AxisType>(key.arg(1));
      const UOp outer = g_.Range(next_++, type, many),
                inner = g_.Range(next_++, type, g_.Index(block));
      const UOp begin = b_.Make(Op::kMul, {at(outer), g_.Index(block)});
      return Replacement{b_.Make(Op::kAdd, {begin, inner}), {outer, inner}};
    };
    Replacements with;
    for (const UOp key : handled_) {
      if (with.contains(key.id())) continue;
      with[key.id()] = split(key, count, [&](UOp i) {
        return first_.valid() ? Least(b_.Make(Op::kAdd, {first, i}), last) : i;
      });
    }
    const Replacements ranges = with;
    if (padded_ != keys_) FillRows(&with);
    Replacements all = with;
    for (const auto& [reduce, other] : products_) {
      const UOp key = reduce.src(1);
      Replacements skipped = ranges;
      const UOp many = b_.Make(Op::kWhere, {IsFinite(other), g_.Index(0), hidden});
      skipped[key.id()] = split(key, many, [&](UOp i) {
        UOp before = count;
        if (first_.valid()) {
          before = b_.Make(Op::kWhere, {b_.Make(Op::kCmpLt, {i, first}), g_.Index(0), count});
        }
        return Least(b_.Make(Op::kAdd, {i, before}), last);
      });
      if (padded_ != keys_) FillRow(key, &skipped);
      const UOp zero = g_.ConstFloat(other.dtype(), 0.0);
      const UOp nothing = g_.Make(Op::kMul, {zero, Substitute(b_, other, skipped)});
      std::vector<UOp> src{nothing};
      for (UOp range : skipped[key.id()].ranges) src.push_back(range);
      const UOp left_out =
          g_.Make(Op::kReduce, DType::kVoid, src, std::vector<int64_t>{reduce.arg(0)});
      const UOp seen = Substitute(b_, reduce, with);
      if (!left_out.valid() || !seen.valid()) return {};
      all[reduce.id()] = {b_.Make(Op::kAdd, {seen, left_out}), {}};
    }
    return Substitute(b_, sink_, all);
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const std::vector<uint32_t> order_;
  const Dependence d_;
  UOp scores_;                                // the STORE of what is masked
  int64_t rows_ = 1, keys_ = 0, padded_ = 0;  // with whole blocks
  std::vector<UOp> stores_;
  UOp end_, first_;                                        // of the positions that are shown
  absl::flat_hash_map<uint32_t, Hidden> buffers_, folds_;  // by BUFFER, by REDUCE
  std::vector<std::pair<UOp, UOp>> products_;  // REDUCEs and the factors that rows share
  std::vector<UOp> handled_;                   // ranges along the rows
  int64_t next_ = 0;                           // range
};

}  // namespace

UOp LimitLoops(Rewriter& b, UOp sink, const Target& target) {
  // Threads share a loop only if it has as many iterations for all.
  if (target.has(ParallelLevel::kThreads)) return sink;
  const Graph& g = *sink.graph();
  const std::vector<uint32_t> order = PostOrder(sink);
  if (std::ranges::none_of(order, [&](uint32_t id) { return g.op(id) == Op::kBuffer; }))
    return sink;
  std::optional<Dependence> d = FindDependence(sink);
  if (!d) return sink;
  const int64_t multiple = KeepsOrder(target) ? PartialSums(DType::kFloat32) : 1;
  return Limiter(b, sink, *std::move(d)).Run(multiple);
}

}  // namespace telegrad
