// What is known of hidden values says hidden_values.h. A reduction of hidden values is one of the
// maximum's identity, of zeros, or of products of zero. The bound comes from comparisons that are
// linear in the positions: of the rows that are computed together the one that sees most.
#include "engine/lowering/limit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/hidden_values.h"
#include "engine/lowering/mask_bounds.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr size_t kMostBounded = 16;  // values that are tested, each in loops of its own
constexpr int64_t kLeastBlocks = 8;  // of a row, at least, that may end early each

class Limiter {
 public:
  Limiter(Rewriter& b, UOp sink, Dependence d)
      : b_(b), g_(*b.graph()), sink_(sink), order_(PostOrder(sink)), d_(std::move(d)) {}

  UOp Run(int64_t multiple, const ScheduleCosts& costs) {
    const int64_t most_block = costs.row_block, least_block = costs.least_block;
    if (!FindRowsWithMask() || !CheckUses()) return sink_;
    if (bounded_.size() > kMostBounded) return sink_;
    int64_t block = 0;
    // Smaller ones than the rows that are computed together end no earlier.
    const int64_t some = rows_ > 1 ? std::min(rows_, keys_ / kLeastBlocks) : keys_ / kLeastBlocks;
    const int64_t most = std::clamp(some, least_block, most_block);
    for (int64_t n = least_block; n <= std::min(most_block, keys_ / 2); ++n) {
      if (keys_ % n == 0 && n % multiple == 0 && (n <= most || block == 0)) block = n;
    }
    // A last block that is not whole would change which terms are added together.
    if (block == 0 && multiple == 1 && copies_ == 1 && keys_ >= 2 * least_block) {
      block = most / least_block * least_block;
    }
    if (block == 0) return sink_;
    const UOp limited = Rebuild(block);
    return limited.valid() && !FindDependence(limited) ? sink_ : limited;  // too many ranges
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

  // The kept rows: how many there are, how long they are, and how often so many are kept, as for
  // each head of a group. A mask says which range is along a row.
  bool FindRowsWithMask() {
    const auto first = std::ranges::find_if(order_, [&](uint32_t id) {
      return g_.op(id) == Op::kStore && BufferOf(g_.at(id)).valid();
    });
    if (first == order_.end()) return false;
    const UOp store = g_.at(*first);
    for (const bool whole : {true, false}) {
      for (const UOp range : d_.ranges) {
        if (!range.src(0).is_const()) continue;
        const std::optional<int64_t> stride = StrideOf(store.src(0).src(1), range);
        if (!stride || *stride < 1) continue;
        rows_ = *stride;
        keys_ = SizeOf(range);
        const int64_t elements = BufferOf(store).elements();
        if (keys_ < 2 || elements % (rows_ * keys_) != 0) continue;
        copies_ = elements / (rows_ * keys_);
        if ((copies_ == 1) == whole && FindRows() && FindMask()) return true;
      }
    }
    return false;
  }

  bool FindRows() {
    stores_.clear();
    for (uint32_t id : order_) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kStore) || !BufferOf(u).valid()) continue;
      const bool rows = BufferOf(u).elements() == keys_ * rows_ * copies_ && KeyOf(u).valid();
      if (!rows) return false;
      stores_.push_back(u);
    }
    return true;
  }

  // The first rows of which a comparison hides positions. Those before them may be bounded.
  bool FindMask() {
    buffers_.clear();
    for (const UOp store : stores_) {
      if (FindMask(store)) {
        scores_ = store;
        buffers_.clear();
        bounded_.clear();
        return true;
      }
      buffers_[BufferOf(store).id()] = StateOf(store.src(1), KeyOf(store));
    }
    return false;
  }

  // Which positions of a row some comparison hides, as bounds of the others. By a finite number one
  // comparison alone may hide them, which shows some position of each row.
  bool FindMask(UOp store) {
    if (FindMasks(store)) return true;
    low_ = true;
    if (FindMasks(store) && masks_.size() == 1 && ShowsFirst(masks_[0])) return true;
    low_ = false;
    masks_.clear();
    first_ = end_ = UOp();
    return false;
  }

  bool FindMasks(UOp store) {
    const UOp key = KeyOf(store), row = RowOf(store), value = store.src(1);
    for (uint32_t id : PostOrder(value)) {
      const UOp compare = g_.at(id);
      if (!compare.is(Op::kCmpLt) || !d_.Depends(compare, key)) continue;
      for (const bool hides : {false, true}) {
        const UOp masked = Substitute(b_, value, {{id, {g_.ConstWord(DType::kBool, hides), {}}}});
        if (!masked.valid()) return false;
        const Hidden state = StateOf(masked, key).is;
        if (low_ ? state != Hidden::kLow : state != Hidden::kMinusInf && state != Hidden::kZero) {
          continue;
        }
        const auto mask = PositionMask::Of(compare, hides, key, row);
        if (mask && AddBound(*mask)) masks_.push_back(*mask);
      }
    }
    return end_.valid() || first_.valid();
  }

  // Whether the first position of every row is shown, and those that are hidden follow all others.
  bool ShowsFirst(const PositionMask& mask) const {
    if (mask.along >= 0) return false;
    auto least = static_cast<double>(mask.rest.constant);
    if (mask.across < 0) least += static_cast<double>(mask.across * (rows_ - 1));
    for (const auto& [id, c] : mask.rest.terms) {
      const UOp u = g_.at(id);
      if (!u.bounds().known()) return false;
      least += static_cast<double>(c) * static_cast<double>(c > 0 ? u.vmin() : u.vmax());
    }
    return least >= 0;
  }

  bool AddBound(const PositionMask& mask) {
    const auto bound = BoundOf(b_, mask, rows_, [&](UOp u) { return IsOuter(u); });
    if (!bound) return false;
    if (bound->end.valid()) end_ = end_.valid() ? Least(end_, bound->end) : bound->end;
    if (bound->first.valid()) {
      first_ = first_.valid() ? b_.Make(Op::kMax, {first_, bound->first}) : bound->first;
    }
    return true;
  }

  // What is stored where the mask hides a position, or where it shows it.
  UOp StoredWhere(UOp store, const PositionMask& mask, bool hidden) {
    const UOp key = KeyOf(store), row = RowOf(store), value = store.src(1);
    Replacements with;
    for (uint32_t id : PostOrder(value)) {
      const UOp compare = g_.at(id);
      if (!compare.is(Op::kCmpLt) || !d_.Depends(compare, key)) continue;
      for (const bool hides : {false, true}) {
        if (PositionMask::Of(compare, hides, key, row) != mask) continue;
        with[id] = {g_.ConstWord(DType::kBool, hides == hidden), {}};
      }
    }
    return with.empty() ? value : Substitute(b_, value, with);
  }

  // The state of what is stored, whichever mask hides a position.
  HiddenValue StateOfStored(UOp store) {
    std::optional<HiddenValue> state;
    for (const PositionMask& mask : masks_) {
      const HiddenValue here =
          StateOf(StoredWhere(store, mask, /*hidden=*/true), KeyOf(store), /*stored=*/true);
      if (here.is == Hidden::kBounded && !here.bounded()) return {};
      if (!state) {
        state = here;
        continue;
      }
      if (here.is != state->is) return {};
      state->magnitude = std::max(state->magnitude, here.magnitude);
      state->added = std::max(state->added, here.added);
    }
    return *state;
  }
  // Whether those scores are bounded that are shown, if what is added to `bounded_` is.
  bool ShowsBounded() {
    const UOp shown = StoredWhere(scores_, masks_[0], /*hidden=*/false);
    const HiddenValue value = StateOf(shown, KeyOf(scores_), /*stored=*/true);
    return value.is == Hidden::kBounded && value.bounded();
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
  // invalid one. What has to be bounded so that it is hidden, or, where it is `stored`, bounded, is
  // added to `bounded_`.
  HiddenValue StateOf(UOp root, UOp key, bool stored = false) {
    absl::flat_hash_map<uint32_t, HiddenValue> state;
    std::vector<UOp> bounded;
    std::vector<std::pair<uint32_t, bool>> stack{{root.id(), false}};
    while (!stack.empty()) {
      const auto [id, ready] = stack.back();
      stack.pop_back();
      if (state.contains(id)) continue;
      const UOp u = g_.at(id);
      if (const UOp stored = StoredFor(u); stored.valid()) {
        if (!ready) {
          stack.emplace_back(id, true);
          stack.emplace_back(stored.id(), false);
          continue;
        }
        const HiddenValue value = state[stored.id()];
        state[id] =
            value.bounded() ? HiddenValue{Hidden::kBounded, value.magnitude} : HiddenValue{};
        continue;
      }
      if (u.is(Op::kLoad) || u.is(Op::kRange) || folds_.contains(id)) {
        state[id] = StateOfLeaf(u, key, &bounded);
        continue;
      }
      const bool folds = u.is(Op::kReduce);  // of what the row does not say
      if (!ready) {
        stack.emplace_back(id, true);
        for (int i = 0; i < (folds ? 1 : u.num_src()); ++i) {
          stack.emplace_back(u.src(i).id(), false);
        }
        continue;
      }
      const auto of = [&](int i) { return i < u.num_src() ? state[u.src(i).id()] : HiddenValue{}; };
      state[id] =
          folds ? FoldHidden(u, of(0)) : CombineHidden(b_, u, of(0), of(1), of(2), &bounded);
      if (!IsNearTop(u, of(0), of(1), state[id])) state[id] = {};
    }
    if (std::ranges::any_of(bounded, [&](UOp u) { return IsMadeHere(u); })) return {};
    const HiddenValue value = state[root.id()];
    const Hidden found = value.is;
    const bool hidden =
        found == Hidden::kMinusInf || found == Hidden::kLow || found == Hidden::kZero;
    for (const UOp u : bounded) {
      if (!hidden && !(found == Hidden::kBounded && stored)) break;
      if (std::ranges::find(bounded_, u) == bounded_.end()) bounded_.push_back(u);
    }
    return value;
  }

  // Where a finite number hides: only a row's maximum itself is no lower than a bounded score, and
  // one is only where the mask shows such a score of each row.
  bool IsNearTop(UOp u, HiddenValue x, HiddenValue y, HiddenValue made) const {
    const auto is_top = [](HiddenValue v) {
      return v.is == Hidden::kTop || v.is == Hidden::kMinusTop;
    };
    if (low_) return !is_top(made) || (!u.is(Op::kMul) && ByteSize(u.dtype()) >= 4);
    return made.is != Hidden::kLow || (!is_top(x) && !is_top(y));
  }

  HiddenValue StateOfLeaf(UOp u, UOp key, std::vector<UOp>* bounded) {
    if (u.is(Op::kLoad) && BufferOf(u).valid()) {
      const auto it = buffers_.find(BufferOf(u).id());
      const bool known = key.valid() && KeyOf(u) == key && it != buffers_.end();
      if (!known) return {};
      return it->second;
    }
    if (const auto it = folds_.find(u.id()); it != folds_.end()) return {it->second};
    if (!u.is(Op::kLoad) || !IsFloat(u.dtype()) || IsMadeHere(u)) return {};
    bounded->push_back(u);
    return {Hidden::kBounded, kArgumentMagnitude};
  }

  // What a nest of this kernel has stored in the argument that is loaded; invalid where none has.
  UOp StoredFor(UOp load) const {
    if (!load.is(Op::kLoad)) return {};
    const UOp memory = load.src(0).src(0);
    if (!memory.is(Op::kAfter) || memory.num_src() != 2 || !memory.src(0).is(Op::kParam)) return {};
    UOp effect = memory.src(1);
    while (effect.is(Op::kEnd)) effect = effect.src(0);
    return effect.is(Op::kStore) ? effect.src(1) : UOp();
  }

  // Whether it is known only after a nest of this kernel, so that no test before the loops can ask
  // what it is.
  bool IsMadeHere(UOp u) const {
    return std::ranges::any_of(PostOrder(u), [&](uint32_t id) { return g_.op(id) == Op::kStore; });
  }

  // The other factor where the body is a product of 0 and something that the rows share.
  UOp SharedFactor(UOp reduce, UOp key) {
    const UOp body = reduce.src(0);
    if (!body.is(Op::kMul)) return {};
    for (int i = 0; i < 2; ++i) {
      const UOp other = body.src(1 - i);
      if (IsMadeHere(other) || StateOf(body.src(i), key).is != Hidden::kZero) continue;
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
        const HiddenValue stored = StateOfStored(u);
        const Hidden state = stored.is;
        if (u == scores_) hidden_ = state;
        const bool low = u == scores_ && low_ && state == Hidden::kLow && ShowsBounded();
        const bool known = low || state == Hidden::kMinusInf || state == Hidden::kZero ||
                           state == Hidden::kBounded;
        if (!known) return false;
        if (!buffers_.emplace(BufferOf(u).id(), stored).second) return false;
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

  // Whether it is an exponential at all positions of a row but those that a mask hides. Where other
  // conditions leave some out, these may be all that the row shows, and the sum may be 0.
  bool IsExponential(UOp u, UOp key) const {
    UOp row;
    for (size_t steps = 0; steps < order_.size(); ++steps) {
      if (u.is(Op::kExp2)) return true;
      if (u.is(Op::kCast)) {
        u = u.src(0);
      } else if (u.is(Op::kLoad) && BufferOf(u).valid()) {
        const auto store =
            std::ranges::find(stores_, BufferOf(u), [&](UOp s) { return BufferOf(s); });
        if (store == stores_.end() || store->src(1) == u) return false;
        key = KeyOf(*store);
        row = RowOf(*store);
        u = store->src(1);
      } else if (u.is(Op::kWhere) && u.src(0).is(Op::kCmpLt)) {
        const auto hides = [&](bool where) {
          const auto mask = PositionMask::Of(u.src(0), where, key, row);
          return mask && std::ranges::find(masks_, *mask) != masks_.end();
        };
        if (hides(true)) {
          u = u.src(2);
        } else if (hides(false)) {
          u = u.src(1);
        } else {
          return false;
        }
      } else {
        return false;
      }
    }
    return false;
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
    const auto kind = reduce.reduce_kind();
    const UOp other = kind == ReduceKind::kAdd ? SharedFactor(reduce, key) : UOp();
    const Hidden state = other.valid() ? Hidden::kAny : StateOf(reduce.src(0), key).is;
    if (other.valid()) {
      products_.push_back({reduce, other, key});
    } else if (reduce.num_src() != 2) {
      return false;
    } else if (kind == ReduceKind::kMax &&
               (state == Hidden::kMinusInf ||
                (state == Hidden::kLow && reduce.src(0).is(Op::kLoad)))) {
      folds_[reduce.id()] = Hidden::kTop;
    } else if (kind == ReduceKind::kAdd && state == Hidden::kZero) {
      const bool scores = hidden_ == Hidden::kMinusInf || hidden_ == Hidden::kLow;
      const bool weights = scores_.src(1).is(Op::kExp2) || scores;
      folds_[reduce.id()] =
          weights && IsExponential(reduce.src(0), key) ? Hidden::kSum : Hidden::kAny;
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

  // Whether all that has to be bounded is, at all places in the inner loops.
  UOp IsBounded() {
    UOp all;
    for (const UOp value : bounded_) {
      Replacements fresh;
      std::vector<UOp> src{UOp()};
      for (const UOp range : d_.ranges) {
        const bool open = Depends(value, range);
        if (!open || IsOuter(range)) continue;
        src.push_back(g_.Range(next_++, AxisType::kReduce, range.src(0)));
        fresh[range.id()] = {src.back(), {src.back()}};
      }
      UOp x = Substitute(b_, value, fresh);
      if (ByteSize(x.dtype()) < 4) x = b_.Make(Op::kCast, DType::kFloat32, {x});
      x = b_.Make(Op::kMax, {x, b_.Make(Op::kNeg, {x})});
      src[0] = x;
      const UOp most = src.size() == 1
                           ? x
                           : g_.Make(Op::kReduce, DType::kVoid, src,
                                     std::vector<int64_t>{static_cast<int64_t>(ReduceKind::kMax)});
      const UOp less = g_.Make(Op::kCmpLt, {most, g_.ConstFloat(x.dtype(), kBoundedArgument)});
      all = all.valid() ? b_.Make(Op::kAnd, {all, less}) : less;
    }
    return all;
  }

  // Also of a node that is made after the dependence is known.
  static bool Depends(UOp value, UOp range) {
    return std::ranges::any_of(PostOrder(value), [&](uint32_t id) { return id == range.id(); });
  }

  // Where blocks do not divide a row, the last one has positions beyond it. They have a score of
  // -inf, or a weight of 0, are loaded from the last position, and what is weighted is 0 there. The
  // memory has room for them.
  void FillRows(Replacements* with) {
    for (const auto& [id, state] : buffers_) {
      const UOp buffer = g_.at(id);
      (*with)[id] = {g_.Make(Op::kBuffer, buffer.dtype(), {},
                             {ToWord(buffer.space()), buffer.buffer_slot(), padded_ * rows_}),
                     {}};
    }
    for (const UOp key : handled_) FillRow(key, with);
    for (const UOp store : stores_) {
      if (store != scores_ && bounded_.empty()) continue;  // what is hidden makes it 0
      const Hidden state = buffers_.at(BufferOf(store).id()).is;
      const bool score = state == Hidden::kMinusInf || state == Hidden::kLow;
      const double hidden = score ? -std::numeric_limits<double>::infinity() : 0;
      const UOp value = Substitute(b_, store.src(1), *with);
      const UOp lowest = g_.ConstFloat(value.dtype(), hidden);
      const UOp inside = IsInside(with->at(KeyOf(store).id()).value);
      (*with)[store.id()] = {g_.Make(Op::kStore, {Substitute(b_, store.src(0), *with),
                                                  b_.Make(Op::kWhere, {inside, value, lowest})}),
                             {}};
    }
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
    for (const auto& [reduce, other, along] : products_) {
      if (along != key) continue;
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
    UOp count = b_.Make(Op::kMax, {b_.Make(Op::kSub, {end, first}), g_.Index(1)});
    for (const UOp range : d_.ranges) next_ = std::max(next_, range.range_id() + 1);
    if (const UOp bounded = IsBounded(); bounded.valid()) {
      count = b_.Make(Op::kWhere, {bounded, count, g_.Index(blocks)});
      if (first_.valid()) first = b_.Make(Op::kWhere, {bounded, first, g_.Index(0)});
    }
    const UOp hidden = b_.Make(Op::kSub, {g_.Index(blocks), count});

    // `at`: the number of the block, from how many there were before it.
    const auto split = [&](UOp key, UOp many, auto at) {
      const auto type = key.axis_type();
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
    for (const auto& [reduce, other, key] : products_) {
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
      for (int i = 1; i < reduce.num_src(); ++i) {
        if (skipped.contains(reduce.src(i).id())) continue;
        const UOp range = g_.Range(next_++, AxisType::kReduce, reduce.src(i).src(0));
        skipped[reduce.src(i).id()] = {range, {range}};
      }
      const UOp zero = g_.ConstFloat(other.dtype(), 0.0);
      const UOp nothing = g_.Make(Op::kMul, {zero, Substitute(b_, other, skipped)});
      std::vector<UOp> src{nothing};
      for (int i = 1; i < reduce.num_src(); ++i) {
        for (UOp range : skipped.at(reduce.src(i).id()).ranges) src.push_back(range);
      }
      const UOp left_out = g_.Make(Op::kReduce, DType::kVoid, src,
                                   std::vector<int64_t>{ToWord(reduce.reduce_kind())});
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
  UOp scores_;  // the STORE of what is masked
  int64_t rows_ = 1, keys_ = 0, copies_ = 1;
  int64_t padded_ = 0;  // keys, with whole blocks
  std::vector<UOp> stores_;
  Hidden hidden_ = Hidden::kAny;  // what `scores_` stores where a position is hidden
  bool low_ = false;              // it is a low number, or looked for
  std::vector<UOp> bounded_;
  std::vector<PositionMask> masks_;
  UOp end_, first_;                                     // of the positions that are shown
  absl::flat_hash_map<uint32_t, HiddenValue> buffers_;  // what is stored where it is hidden
  absl::flat_hash_map<uint32_t, Hidden> folds_;         // by REDUCE
  struct Product {
    UOp reduce, other, key;  // the factor that rows share, and the range along the row
  };
  std::vector<Product> products_;
  std::vector<UOp> handled_;  // ranges along the rows
  int64_t next_ = 0;          // range
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
  return Limiter(b, sink, *std::move(d)).Run(multiple, CostsOf(target).schedule);
}

}  // namespace telegrad
