// The nests that store weights are undone first: where the kernel loads a weight, the expression
// that computes it takes its place. Then the reductions are looked at from the innermost one on,
// and each that is known becomes a load of memory that stands for its result:
//
//   max over k of e(k)                     the maximum m
//   sum over k of exp2((e(k) - m) c)       the sum
//   sum over k of weight(k) v(k)           a weighted sum, where weight is that exponential, also
//                                          times or by something that is the same for all keys
//
// All have to be over the same row, which a comparison of expressions shows: each is written with
// the same ranges. Nothing else may read the scores.
#include "engine/lowering/online_match.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int kMostInlined = 8;      // loads of weights
constexpr int kMostReductions = 16;  // over rows

bool IsFiniteConst(UOp u) {
  return u.is_const() && IsFloat(u.dtype()) &&
         std::isfinite(ScalarAsDouble(u.dtype(), u.const_word()));
}

class Matcher {
 public:
  Matcher(Rewriter& b, UOp sink) : b_(b), g_(*b.graph()), sink_(sink) {
    out_.next_range = NextRangeId(sink);
  }

  std::optional<CoupledSums> Run() {
    const std::vector<uint32_t> order = PostOrder(sink_);
    for (uint32_t id : order) {
      if (g_.op(id) == Op::kBuffer) next_slot_ = std::max(next_slot_, g_.at(id).buffer_slot() + 1);
    }
    if (!FindScores(order)) return std::nullopt;
    for (int i = 0; i < sink_.num_src(); ++i) {
      UOp effect = sink_.src(i);
      while (effect.is(Op::kEnd)) effect = effect.src(0);
      if (!effect.is(Op::kStore)) return std::nullopt;
      if (!Memory(effect.src(0)).is(Op::kParam)) continue;
      const UOp root = Couple(sink_.src(i));
      if (!root.valid()) return std::nullopt;
      out_.roots.push_back(root);
    }
    if (out_.sums.empty()) return std::nullopt;
    return std::move(out_);
  }

 private:
  // What a load reads that waits for a nest: AFTER(AFTER(BUFFER, shared...), nest).
  UOp NestOf(UOp load) const {
    const UOp base = load.src(0).src(0);
    const bool waits = base.is(Op::kAfter) && base.num_src() == 2 && base.src(1).is(Op::kEnd) &&
                       Memory(load.src(0)).is(Op::kBuffer) && load.src(0).num_src() == 2;
    return waits && base.src(1).src(0).is(Op::kStore) ? base.src(1) : UOp();
  }

  // The ranges that `u` depends on, without the shared ones; invalid nodes have none.
  std::vector<UOp> OpenRanges(UOp u) const {
    std::vector<UOp> open;
    const std::optional<Dependence> d = FindDependence(u);
    if (!d) return open;
    for (RangeSet set = d->of[u.id()]; set != 0; set &= set - 1) {
      const UOp range = d->ranges[std::countr_zero(set)];
      if (std::ranges::find(out_.shared, range) == out_.shared.end()) open.push_back(range);
    }
    return open;
  }

  // The first maximum over a row in private memory says which memory that is.
  bool FindScores(const std::vector<uint32_t>& order) {
    for (uint32_t id : order) {
      const UOp reduce = g_.at(id);
      if (!reduce.is(Op::kReduce) || reduce.reduce_kind() != ReduceKind::kMax) {
        continue;
      }
      for (uint32_t s : PostOrder(reduce.src(0))) {
        const UOp load = g_.at(s);
        if (load.is(Op::kLoad) && NestOf(load).valid() && SetScores(load, reduce)) return true;
      }
    }
    return false;
  }

  bool SetScores(UOp load, UOp reduce) {
    if (!IsFloat(reduce.dtype()) || ByteSize(reduce.dtype()) < 4) return false;
    const UOp nest = NestOf(load), store = nest.src(0);
    const UOp kept = store.src(0).src(0);
    if (store.src(0).num_src() != 2 || load.src(0).src(0).src(0) != kept) return false;
    out_.shared.clear();
    for (int i = 1; kept.is(Op::kAfter) && i < kept.num_src(); ++i) {
      if (!kept.src(i).is(Op::kRange)) return false;
      out_.shared.push_back(kept.src(i));
    }
    own_.clear();
    Replacements with;
    for (const UOp range : OpenRanges(store.src(0).src(1))) {
      own_.push_back(g_.Range(out_.next_range++, AxisType::kLoop, range.src(0)));
      with[range.id()] = {own_.back(), {own_.back()}};
    }
    out_.loops.clear();
    for (int i = 1; i < nest.num_src(); ++i) {
      const auto own = with.find(nest.src(i).id());
      out_.loops.push_back(own == with.end() ? nest.src(i) : own->second.value);
    }
    place_ = Substitute(b_, store.src(0).src(1), with);
    out_.scores = Substitute(b_, store.src(1), with);
    if (!place_.valid() || !out_.scores.valid()) return false;
    const UOp filled = g_.Make(Op::kAfter, {kept, nest});
    out_.score = g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {filled, place_})});
    const std::optional<Replacements> at = ToScores(load.src(0).src(1));
    if (!at) return false;
    std::vector<UOp> keys;
    for (int i = 1; i < reduce.num_src(); ++i) {
      const auto it = at->find(reduce.src(i).id());
      if (it == at->end()) return false;
      keys.push_back(it->second.value);
    }
    return SetRanges(keys);
  }

  // Rows lie side by side, so the next key is as many elements away as there are rows.
  bool SetRanges(const std::vector<UOp>& keys) {
    out_.row = out_.blocks = out_.key = {};
    for (UOp range : own_) {
      if (std::ranges::find(keys, range) != keys.end()) continue;
      const bool next = range.src(0).is_const() && StrideOf(place_, range) == 1;
      if (out_.row.valid() || !next) return false;
      out_.row = range;
    }
    for (UOp range : keys) {
      const bool inner = range.src(0).is_const() && StrideOf(place_, range) == out_.rows();
      UOp& to = inner && !out_.key.valid() ? out_.key : out_.blocks;
      if (to.valid()) return false;
      to = range;
    }
    return out_.key.valid();
  }

  // The ranges of an access as those of the scores, where it is at the same place.
  std::optional<Replacements> ToScores(UOp index) const {
    const std::vector<UOp> ranges = OpenRanges(index);
    if (ranges.size() != own_.size()) return std::nullopt;
    Replacements with;
    for (UOp range : ranges) {
      const auto same = std::ranges::find_if(own_, [&](UOp own) {
        return own.src(0) == range.src(0) && StrideOf(place_, own) == StrideOf(index, range);
      });
      if (same == own_.end()) return std::nullopt;
      with[range.id()] = {*same, {*same}};
    }
    if (Substitute(b_, index, with) != place_) return std::nullopt;
    return with;
  }

  // The replacements the other way round: those of the scores become those of the access.
  Replacements Inverse(const Replacements& with) const {
    Replacements back;
    for (const auto& [id, to] : with) back[to.value.id()] = {g_.at(id), {g_.at(id)}};
    return back;
  }

  bool IsScore(UOp u) const {
    return u.is(Op::kLoad) && Memory(u.src(0)) == Memory(out_.score.src(0));
  }

  UOp Couple(UOp root) {
    for (int i = 0; root.valid() && i < kMostInlined; ++i) {
      const UOp next = InlineOne(root);
      if (next == root) break;
      root = next;
    }
    for (int i = 0; root.valid() && i < kMostReductions; ++i) {
      const UOp reduce = FirstOverScores(root);
      if (!reduce.valid()) break;
      const UOp value = ValueOf(reduce, root);
      if (!value.valid()) return {};
      root = Substitute(b_, root, {{reduce.id(), {value, {}}}});
    }
    if (!root.valid()) return root;
    for (uint32_t id : PostOrder(root)) {
      if (IsScore(g_.at(id))) return {};
    }
    return root;
  }

  // `root` with the expression of a kept weight in place of one load of it.
  UOp InlineOne(UOp root) {
    for (uint32_t id : PostOrder(root)) {
      const UOp load = g_.at(id);
      if (!load.is(Op::kLoad) || IsScore(load) || !NestOf(load).valid()) continue;
      const UOp store = NestOf(load).src(0);
      if (store.src(0).num_src() != 2 || Memory(store.src(0)) != Memory(load.src(0))) continue;
      const std::optional<Replacements> to = ToScores(store.src(0).src(1)),
                                        from = ToScores(load.src(0).src(1));
      if (!to || !from) continue;
      const UOp value = Substitute(b_, Substitute(b_, store.src(1), *to), Inverse(*from));
      if (!value.valid()) return value;
      return Substitute(b_, root, {{id, {value, {}}}});
    }
    return root;
  }

  UOp FirstOverScores(UOp root) const {
    for (uint32_t id : PostOrder(root)) {
      const UOp u = g_.at(id);
      if (u.is(Op::kReduce) && ScoreIn(u.src(0)).valid()) return u;
    }
    return {};
  }

  UOp ScoreIn(UOp u) const {
    for (uint32_t id : PostOrder(u)) {
      if (IsScore(g_.at(id))) return g_.at(id);
    }
    return {};
  }

  // What a reduction over scores becomes; invalid where it is none of the three.
  UOp ValueOf(UOp reduce, UOp root) {
    const UOp load = ScoreIn(reduce.src(0));
    if (load.src(0).src(0) != out_.score.src(0).src(0)) return {};
    const std::optional<Replacements> at = ToScores(load.src(0).src(1));
    if (!at || !IsOverKeys(reduce, *at)) return {};
    const UOp body = Substitute(b_, reduce.src(0), *at);
    if (!body.valid() || !ReadsOneScore(body)) return {};
    const Replacements back = Inverse(*at);
    const auto kind = reduce.reduce_kind();
    if (kind == ReduceKind::kMax) return Maximum(body, back);
    if (kind != ReduceKind::kAdd || !out_.maximum.valid()) return {};
    if (IsWeight(body)) return Sum(body, back);
    return body.is(Op::kMul) ? Weighted(body, back, root) : UOp();
  }

  bool IsOverKeys(UOp reduce, const Replacements& at) const {
    if (reduce.num_src() != (out_.blocks.valid() ? 3 : 2)) return false;
    for (int i = 1; i < reduce.num_src(); ++i) {
      const auto it = at.find(reduce.src(i).id());
      if (it == at.end() || it->second.value == out_.row) return false;
    }
    return true;
  }

  bool ReadsOneScore(UOp body) const {
    return std::ranges::all_of(PostOrder(body), [&](uint32_t id) {
      return !IsScore(g_.at(id)) || g_.at(id) == out_.score;
    });
  }

  // Whether nothing but the place of a score is open in it.
  bool IsOfScores(UOp u) const {
    return std::ranges::all_of(
        OpenRanges(u), [&](UOp range) { return std::ranges::find(own_, range) != own_.end(); });
  }

  UOp NewMemory(DType dtype, int64_t elements) {
    const UOp buffer =
        g_.Make(Op::kBuffer, dtype, {},
                {static_cast<int64_t>(AddressSpace::kRegister), next_slot_++, elements});
    std::vector<UOp> src{buffer};
    src.insert(src.end(), out_.shared.begin(), out_.shared.end());
    return src.size() == 1 ? buffer : g_.Make(Op::kAfter, DType::kVoid, src);
  }

  // An element for each row, at that of the scores.
  UOp OfRow(UOp memory) {
    const UOp row = out_.row.valid() ? out_.row : g_.Index(0);
    return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {memory, row})});
  }

  UOp Maximum(UOp body, const Replacements& back) {
    if (out_.maximum.valid()) {
      if (body != out_.element) return {};
    } else {
      if (!IsOfScores(body)) return {};
      out_.element = body;
      out_.maximum_memory = NewMemory(body.dtype(), out_.rows());
      out_.maximum = OfRow(out_.maximum_memory);
    }
    return Substitute(b_, out_.maximum, back);
  }

  // exp2((element - shift) scale), of which the shift is the maximum or, where that is no finite
  // number, a constant.
  bool IsWeight(UOp u) {
    if (!u.is(Op::kExp2) || u.dtype() != out_.element.dtype()) return false;
    UOp difference = u.src(0), scale, shift;
    if (difference.is(Op::kMul)) {
      for (int i = 0; i < 2; ++i) {
        if (IsFiniteConst(difference.src(i))) scale = difference.src(i);
      }
      if (!scale.valid() || ScalarAsDouble(scale.dtype(), scale.const_word()) <= 0) return false;
      difference = difference.src(difference.src(0) == scale ? 1 : 0);
    }
    if (difference.is(Op::kSub) && difference.src(0) == out_.element) {
      shift = difference.src(1);
    } else if (difference.is(Op::kAdd)) {
      for (int i = 0; i < 2; ++i) {
        const UOp minus = difference.src(1 - i);
        if (difference.src(i) == out_.element && minus.is(Op::kNeg)) shift = minus.src(0);
      }
    }
    if (!shift.valid() || !IsShift(shift)) return false;
    if (out_.shift.valid()) return shift == out_.shift && scale == out_.scale;
    out_.shift = shift;
    out_.scale = scale;
    return true;
  }

  bool IsShift(UOp shift) {
    if (shift == out_.maximum) return true;
    if (!shift.is(Op::kWhere)) return false;
    const UOp x = shift.src(1), y = shift.src(2);
    const bool replaces =
        (x == out_.maximum && IsFiniteConst(y)) || (y == out_.maximum && IsFiniteConst(x));
    if (!replaces) return false;
    for (uint32_t id : PostOrder(shift)) {
      const UOp u = g_.at(id);
      if ((u.is(Op::kLoad) && u != out_.maximum) || u.is(Op::kReduce)) return false;
    }
    // The maximum alone decides: neither the position in the row nor the number of the row does.
    const UOp decision =
        Substitute(b_, shift.src(0), {{out_.maximum.id(), {x == out_.maximum ? y : x, {}}}});
    return decision.valid() && OpenRanges(decision).empty();
  }

  UOp Sum(UOp body, const Replacements& back) {
    if (!out_.sum_memory.valid()) out_.sum_memory = NewMemory(body.dtype(), out_.rows());
    return Substitute(b_, OfRow(out_.sum_memory), back);
  }

  // Whether it is computed from what is added up, which is known only after the last block.
  bool ReadsResults(UOp u) const {
    return std::ranges::any_of(PostOrder(u), [&](uint32_t id) {
      if (!g_.at(id).is(Op::kLoad)) return false;
      const UOp memory = g_.at(id).src(0).src(0);
      return memory == out_.maximum_memory || memory == out_.sum_memory ||
             std::ranges::find(out_.sums, memory, &WeightedSum::memory) != out_.sums.end();
    });
  }

  bool IsSameForKeys(UOp u) const {
    const std::vector<UOp> open = OpenRanges(u);
    return std::ranges::find(open, out_.key) == open.end() &&
           (!out_.blocks.valid() || std::ranges::find(open, out_.blocks) == open.end());
  }

  // Whether it says that no score of the row is above -inf, and `otherwise` is 0.
  bool IsHiddenRow(UOp condition, UOp otherwise) const {
    if (!condition.is(Op::kCmpEq) || !otherwise.is_const()) return false;
    const auto value = [](UOp u) { return ScalarAsDouble(u.dtype(), u.const_word()); };
    const UOp lowest = condition.src(1);
    return condition.src(0) == out_.maximum && lowest.is_const() && IsFloat(otherwise.dtype()) &&
           value(lowest) == -std::numeric_limits<double>::infinity() && value(otherwise) == 0;
  }

  // The sum of weights times values. What all weights of a row are multiplied or divided by, the
  // sum is. While the maximum is -inf zeros are added up, so where weights are 0 in a row without a
  // score, the sum is what has been added up.
  UOp Weighted(UOp body, const Replacements& back, UOp root) {
    for (int i = 0; i < 2; ++i) {
      UOp weight = body.src(i), hidden;
      const UOp value = body.src(1 - i);
      if (weight.is(Op::kWhere) && IsHiddenRow(weight.src(0), weight.src(1))) {
        hidden = weight.src(0);
        weight = weight.src(2);
      }
      std::vector<std::pair<Op, UOp>> by;  // the innermost last
      while (weight.is(Op::kFDiv) || weight.is(Op::kMul)) {
        const int at = weight.is(Op::kMul) && IsSameForKeys(weight.src(0)) ? 1 : 0;
        if (!IsSameForKeys(weight.src(1 - at))) break;
        by.emplace_back(weight.op(), weight.src(1 - at));
        weight = weight.src(at);
      }
      if (!IsWeight(weight) || ScoreIn(value).valid() || ReadsResults(value)) continue;
      const UOp added = Accumulated(value, weight.dtype(), back, root);
      if (!added.valid()) return {};
      UOp sum = added;
      for (size_t n = by.size(); n-- > 0;) {
        sum = b_.Make(by[n].first, {sum, Substitute(b_, by[n].second, back)});
      }
      if (!hidden.valid()) return sum;
      out_.sums.back().hides_rows = true;
      return b_.Make(Op::kWhere, {Substitute(b_, hidden, back), added, sum});
    }
    return {};
  }

  UOp Accumulated(UOp value, DType dtype, const Replacements& back, UOp root) {
    WeightedSum sum;
    sum.value = value;
    sum.dtype = dtype;
    if (out_.row.valid()) sum.row = back.at(out_.row.id()).value;
    std::vector<UOp> open = OpenRanges(value);
    for (UOp effect = root; effect.is(Op::kEnd); effect = effect.src(0)) {
      std::vector<UOp> closed;
      for (int i = 1; i < effect.num_src(); ++i) {
        const UOp range = effect.src(i);
        const bool depends = range == sum.row || std::ranges::find(open, range) != open.end();
        std::erase(open, range);
        if (depends) closed.push_back(range);
      }
      sum.kept.insert(sum.kept.end(), closed.begin(), closed.end());
    }
    // The value depends on the row of the scores, the keys, and loops around the root.
    for (UOp range : open) {
      if (std::ranges::find(own_, range) == own_.end()) return {};
    }
    if (sum.row.valid() && std::ranges::find(sum.kept, sum.row) == sum.kept.end()) return {};
    int64_t elements = 1;
    for (UOp range : sum.kept) {
      if (!range.src(0).is_const()) return {};
      elements *= SizeOf(range);
    }
    sum.memory = NewMemory(dtype, elements);
    const UOp at = RowMajor(b_, sum.kept);
    out_.sums.push_back(sum);
    return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {sum.memory, at})});
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  CoupledSums out_;
  std::vector<UOp> own_;  // ranges of the place of a score
  UOp place_;             // its index
  int64_t next_slot_ = 0;
};

}  // namespace

int64_t CoupledSums::rows() const { return row.valid() ? SizeOf(row) : 1; }

std::optional<CoupledSums> MatchCoupledSums(Rewriter& b, UOp sink) {
  return Matcher(b, sink).Run();
}

}  // namespace telegrad
