// In an iteration of the loop over blocks of keys, of a thread's keys k:
//
//   score[k]    a sum of products: the thread's channels, then those of its neighbours
//   m           m' = max(m, max over k of e[k])
//   weight[k]   exp2((e[k] - m) c)
//   l           l exp2((m' - m) c) + sum over k of weight[k]
//   y[c]        y[c] exp2((m' - m) c) + sum over k of weight[k] v[k, c]
//
// After the loop, with M the maximum of all m, l and y are the sums over all threads of theirs
// times exp2((m - M) c).
#include "engine/lowering/workgroup_online_row.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <span>

#include "engine/lowering/affine.h"
#include "engine/lowering/online_nodes.h"
#include "engine/lowering/online_terms.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/shown_blocks.h"
#include "engine/lowering/workgroup_matmul.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

// A thread's elements of an axis: `steps` times one vector of each of the neighbours in turn.
struct AxisShare {
  UOp axis;
  int64_t lanes = 1, steps = 1;
};

class RowSummer : OnlineNodes {
 public:
  RowSummer(Rewriter& b, const Target& target, const CoupledSums& sums)
      : OnlineNodes(b, sums.maximum.dtype(), sums.next_range),
        target_(target),
        s_(sums),
        keys_together_(CostsOf(target).group.accumulators),
        terms_(b, s_) {}

  UOp Run() {
    if (s_.row.valid() || s_.blocks.valid() || s_.sums.size() != 1) return {};
    if (sum().kept.size() != 1 || !FindProduct() || !MakeThreads()) return {};
    StoreScores();
    UpdateMaximum();
    StoreWeights();
    AddWeights();
    AddValues();
    return Finish();
  }

 private:
  const WeightedSum& sum() const { return s_.sums[0]; }
  UOp channel() const { return sum().kept[0]; }

  // The scores' sum of products, if they have one, over one axis.
  bool FindProduct() {
    for (uint32_t id : PostOrder(s_.scores)) {
      const UOp reduce = g_.at(id);
      if (!reduce.is(Op::kReduce)) continue;
      const bool one = !product_.valid() && reduce.num_src() == 2 &&
                       reduce.src(1).src(0).is_const() && reduce.reduce_kind() == ReduceKind::kAdd;
      if (!one) return false;
      product_ = reduce;
    }
    return true;
  }

  // As wide as all of the loads that walk along the axis are contiguous and aligned.
  AxisShare ShareOf(UOp axis, UOp value) const {
    AxisShare share{.axis = axis};
    int64_t lanes = target_.vector_lanes;
    for (uint32_t id : PostOrder(value)) {
      const UOp load = g_.at(id);
      if (!load.is(Op::kLoad) || !DependsOn(load, axis)) continue;
      lanes = std::min<int64_t>(lanes, target_.vector_bytes / ByteSize(load.dtype()));
      if (StrideOf(load.src(0).src(1), axis) != 1) lanes = 1;
    }
    while (SizeOf(axis) % lanes != 0) lanes /= 2;
    share.lanes = std::min(lanes, target_.vector_bytes / int64_t{2});
    return share;
  }

  bool MakeThreads() {
    value_ = ShareOf(channel(), sum().value);
    if (product_.valid()) terms_of_ = ShareOf(product_.src(1), product_.src(0));
    const AxisShare& first = product_.valid() ? terms_of_ : value_;
    const int64_t chunks = SizeOf(first.axis) / first.lanes;
    const auto part_of_warp = static_cast<int64_t>(target_.warp & -target_.warp);
    int64_t neighbours = std::bit_floor(static_cast<uint64_t>(std::min(chunks, part_of_warp)));
    const int64_t dividing = chunks & -chunks;
    if (dividing >= kLeastRow) neighbours = std::min(neighbours, dividing);
    for (AxisShare* share : {&value_, &terms_of_}) {
      if (!share->axis.valid()) continue;
      const int64_t together = share->lanes * neighbours;
      share->steps = (SizeOf(share->axis) + together - 1) / together;
    }
    const int64_t keys = SizeOf(s_.key);
    int64_t threads = std::min<int64_t>(CostsOf(target_).group.threads, target_.group_threads);
    while (threads > target_.warp && threads / 2 / neighbours * keys_together_ >= keys)
      threads /= 2;
    threads = std::max<int64_t>(threads / target_.warp, 1) * target_.warp;
    if (target_.warp % neighbours != 0 || threads > target_.group_threads) return false;
    slots_ = threads / neighbours;
    slot_ = g_.Index(0);
    // Those of a warp are a range of their own, so that lanes exchange their parts of a sum.
    for (const int64_t size : {threads / target_.warp, target_.warp / neighbours}) {
      if (size == 1) continue;
      slot_ranges_.push_back(Fresh(AxisType::kLocal, size));
      slot_ = Add(Mul(slot_, size), slot_ranges_.back());
    }
    if (slot_ranges_.empty()) return false;
    neighbour_ = Fresh(AxisType::kLocal, neighbours);
    std::vector<UOp> all = slot_ranges_;
    all.push_back(neighbour_);
    const BlockWalk walk{.sums = s_,
                         .value = FactorLoad(sum().value),
                         .channel = channel(),
                         .threads = all,
                         .block = slots_ * keys_together_};
    const UOp shown = BlocksShown(b_, target_, walk, &next_range_);
    blocks_ = g_.Range(next_range_++, AxisType::kReduce, shown);
    return true;
  }

  UOp Times(UOp x, UOp y) { return b_.Make(Op::kMul, {x, y}); }
  UOp Number(double value) { return g_.ConstFloat(dtype_, value); }
  UOp Only(UOp memory) { return Load(memory, g_.Index(0)); }
  // Memory that each block has anew, filled by one store for each of `loops`.
  UOp OfBlock(int64_t elements, UOp index, UOp value, std::span<const UOp> loops) {
    const UOp memory = g_.Make(Op::kAfter, {Private(elements), blocks_});
    return g_.Make(Op::kAfter, {memory, Nest(Store(memory, index, value), {loops})});
  }
  // `memory` in the loop over blocks, where it has `first` in the beginning.
  UOp Carried(UOp memory, int64_t elements, UOp first) {
    const UOp each = Fresh(AxisType::kUpcast, elements);
    return g_.Make(Op::kAfter, {memory, Nest(Store(memory, each, first), {{&each, 1}}), blocks_});
  }
  UOp InLoop(UOp nest) { return g_.Make(Op::kEnd, {nest, blocks_}); }
  // A nest of one store.
  UOp Once(UOp store) {
    const UOp once = Fresh(AxisType::kUpcast, 1);
    return Nest(store, {{&once, 1}});
  }

  UOp KeyAt(UOp each) {
    const UOp number = Add(Mul(blocks_, keys_together_), each);
    return Add(Mul(number, slots_), slot_);
  }
  // Whether there is the key; invalid: there are all.
  UOp Exists(UOp key) {
    const int64_t keys = SizeOf(s_.key);
    if (keys % (slots_ * keys_together_) == 0) return {};
    return b_.Make(Op::kCmpLt, {key, g_.Index(keys)});
  }

  // Where the thread's elements of an axis are, and their numbers.
  struct Walk {
    UOp at, number, exists;  // exists: invalid if all do
    std::vector<UOp> ranges = {};
  };
  Walk Over(const AxisShare& share, AxisType of_steps, AxisType of_lanes) {
    Walk walk{.at = neighbour_, .number = g_.Index(0), .exists = {}};
    if (share.steps > 1) {
      walk.ranges.push_back(Fresh(of_steps, share.steps));
      walk.at = Add(Mul(walk.ranges.back(), SizeOf(neighbour_)), walk.at);
      walk.number = Mul(walk.ranges.back(), share.lanes);
    }
    walk.at = Mul(walk.at, share.lanes);
    if (share.lanes > 1) {
      walk.ranges.push_back(Fresh(of_lanes, share.lanes));
      walk.at = Add(walk.at, walk.ranges.back());
      walk.number = Add(walk.number, walk.ranges.back());
    }
    if (walk.ranges.empty()) walk.ranges.push_back(Fresh(of_steps, 1));
    const int64_t all = share.steps * share.lanes * SizeOf(neighbour_), size = SizeOf(share.axis);
    if (all != size) walk.exists = b_.Make(Op::kCmpLt, {walk.at, g_.Index(size)});
    return walk;
  }
  UOp ZeroWithout(UOp value, UOp exists) {
    if (!exists.valid()) return value;
    return b_.Make(Op::kWhere, {exists, value, g_.ConstFloat(value.dtype(), 0.0)});
  }

  void StoreScores() {
    const UOp each = Fresh(AxisType::kUpcast, keys_together_), key = KeyAt(each);
    Replacements with{{s_.key.id(), {key, {}}}};
    if (product_.valid()) {
      Walk walk = Over(terms_of_, AxisType::kUnroll, AxisType::kVector);
      const UOp body = Substitute(b_, product_.src(0),
                                  {{s_.key.id(), {key, {}}}, {terms_of_.axis.id(), {walk.at, {}}}});
      walk.ranges.push_back(neighbour_);
      with[product_.id()] = {
          Reduce(ReduceKind::kAdd, ZeroWithout(body, walk.exists), {walk.ranges}), {}};
    }
    const UOp score = Substitute(b_, s_.scores, with);
    UOp element =
        Substitute(b_, s_.element, {{s_.key.id(), {key, {}}}, {s_.score.id(), {score, {}}}});
    const UOp exists = Exists(key);
    if (exists.valid()) element = b_.Make(Op::kWhere, {exists, element, terms_.Lowest()});
    elements_ = OfBlock(keys_together_, each, element, {&each, 1});
  }

  void UpdateMaximum() {
    maximum_ = Private(1);
    const UOp carried = Carried(maximum_, 1, terms_.Lowest()), old = Only(carried);
    const UOp each = Fresh(AxisType::kUnroll, keys_together_);
    const UOp most = Reduce(ReduceKind::kMax, Load(elements_, each), {{&each, 1}});
    const UOp maximum = b_.Make(Op::kMax, {old, most});
    maximum_done_ = Once(Store(carried, g_.Index(0), maximum));
    const UOp once = Fresh(AxisType::kUpcast, 1);
    scale_ = OfBlock(1, g_.Index(0), terms_.Rescaling(old, maximum), {&once, 1});
  }

  void StoreWeights() {
    const UOp each = Fresh(AxisType::kUpcast, keys_together_);
    const UOp maximum = Only(g_.Make(Op::kAfter, {maximum_, maximum_done_}));
    const UOp weight = terms_.Exponential(Load(elements_, each), terms_.Shift(maximum));
    weights_ = OfBlock(keys_together_, each, weight, {&each, 1});
  }

  void AddWeights() {
    sum_ = Private(1);
    const UOp carried = Carried(sum_, 1, Number(0));
    const UOp before = Times(Only(carried), Only(scale_));
    const UOp each = Fresh(AxisType::kUnroll, keys_together_);
    const UOp more = Reduce(ReduceKind::kAdd, Load(weights_, each), {{&each, 1}});
    const UOp store = Store(carried, g_.Index(0), Add(before, more));
    sum_done_ = InLoop(Once(store));
  }

  void AddValues() {
    const int64_t elements = value_.steps * value_.lanes;
    output_ = Private(elements);
    const UOp carried = Carried(output_, elements, Number(0));
    const Walk walk = Over(value_, AxisType::kUpcast, AxisType::kVector);
    const UOp each = Fresh(AxisType::kUnroll, keys_together_), key = KeyAt(each);
    UOp value =
        Substitute(b_, sum().value, {{s_.key.id(), {key, {}}}, {channel().id(), {walk.at, {}}}});
    value = ZeroWithout(ZeroWithout(value, Exists(key)), walk.exists);
    const UOp more = Reduce(ReduceKind::kAdd, Times(Load(weights_, each), value), {{&each, 1}});
    const UOp before = Times(Load(carried, walk.number), Only(scale_));
    output_done_ = InLoop(Nest(Store(carried, walk.number, Add(before, more)), {walk.ranges}));
  }

  // What all threads have added up.
  void PutTogether() {
    const UOp own = g_.Make(Op::kAfter, {maximum_, InLoop(maximum_done_)});
    const UOp most = Private(1), factor = Private(1), total = Private(1);
    const UOp all = Reduce(ReduceKind::kMax, Only(own), {slot_ranges_});
    maximum_ = g_.Make(Op::kAfter, {most, Once(Store(most, g_.Index(0), all))});
    const UOp by = terms_.Rescaling(Only(own), Only(maximum_));
    scale_ = g_.Make(Op::kAfter, {factor, Once(Store(factor, g_.Index(0), by))});
    const UOp mine = Only(g_.Make(Op::kAfter, {sum_, sum_done_}));
    const UOp added = Reduce(ReduceKind::kAdd, Times(mine, Only(scale_)), {slot_ranges_});
    sum_ = g_.Make(Op::kAfter, {total, Once(Store(total, g_.Index(0), added))});
    const int64_t elements = value_.steps * value_.lanes;
    const UOp part = g_.Make(Op::kAfter, {output_, output_done_}), whole = Private(elements);
    const UOp each = Fresh(AxisType::kUpcast, elements);
    const UOp sums =
        Reduce(ReduceKind::kAdd, Times(Load(part, each), Only(scale_)), {slot_ranges_});
    output_ = g_.Make(Op::kAfter, {whole, Nest(Store(whole, each, sums), {{&each, 1}})});
  }

  UOp Finish() {
    PutTogether();
    std::vector<UOp> roots;
    for (const UOp root : s_.roots) {
      roots.push_back(FinishRoot(root));
      if (!roots.back().valid()) return {};
    }
    return g_.Make(Op::kSink, DType::kVoid, roots);
  }

  // A root stores one element, or one for each channel.
  UOp FinishRoot(UOp root) {
    std::vector<UOp> loops, own;
    UOp store = root;
    for (; store.is(Op::kEnd); store = store.src(0)) {
      for (int i = 1; i < store.num_src(); ++i) {
        const UOp range = store.src(i);
        const bool shared = std::ranges::find(s_.shared, range) != s_.shared.end();
        (shared ? loops : own).push_back(range);
      }
    }
    if (own.size() > 1 || (own.size() == 1 && SizeOf(own[0]) != SizeOf(channel()))) return {};
    Walk walk{.at = {}, .number = g_.Index(0), .exists = {}};
    UOp gate = b_.Make(Op::kCmpLt, {slot_, g_.Index(1)});
    Replacements with;
    if (own.empty()) {
      gate = g_.Make(Op::kAnd, {gate, b_.Make(Op::kCmpLt, {neighbour_, g_.Index(1)})});
    } else {
      walk = Over(value_, AxisType::kUpcast, AxisType::kVector);
      with[own[0].id()] = {walk.at, {}};
      if (walk.exists.valid()) gate = g_.Make(Op::kAnd, {gate, walk.exists});
    }
    for (uint32_t id : PostOrder(store)) {
      const UOp load = g_.at(id);
      if (!load.is(Op::kLoad)) continue;
      const UOp result = Result(load.src(0).src(0), walk);
      if (result.valid()) with[id] = {result, {}};
    }
    store = Substitute(b_, store, with);
    if (!store.valid()) return {};
    const UOp to = store.src(0);
    if (to.num_src() == 3) gate = g_.Make(Op::kAnd, {to.src(2), gate});
    store = g_.Make(Op::kStore, {g_.Make(Op::kIndex, {to.src(0), to.src(1), gate}), store.src(1)});
    loops.insert(loops.end(), slot_ranges_.begin(), slot_ranges_.end());
    loops.push_back(neighbour_);
    loops.insert(loops.end(), walk.ranges.begin(), walk.ranges.end());
    return Nest(store, {loops});
  }

  // What a load of the memory that stands for a result becomes.
  UOp Result(UOp memory, const Walk& walk) {
    if (memory == s_.maximum_memory) return Only(maximum_);
    const bool sums = s_.sum_memory.valid() && memory == s_.sum_memory;
    if (!sums && memory != sum().memory) return {};
    const UOp value = sums ? Only(sum_) : Load(output_, walk.number);
    return terms_.Corrected(value, Only(maximum_), !sums && sum().hides_rows);
  }

  const Target& target_;
  const CoupledSums& s_;
  const int64_t keys_together_;  // of a thread, whose loads need not wait for each other
  OnlineTerms terms_;
  UOp product_;                 // REDUCE; invalid: the scores have none
  AxisShare terms_of_, value_;  // of the product, and of the weighted sums
  int64_t slots_ = 0;           // keys that threads have at a time
  UOp slot_, neighbour_;        // the thread's numbers
  std::vector<UOp> slot_ranges_;
  UOp blocks_;                      // the loop over blocks of keys
  UOp elements_, scale_, weights_;  // of a block
  UOp maximum_, sum_, output_;
  UOp maximum_done_, sum_done_, output_done_;
};

}  // namespace

UOp SumOneRowTogether(Rewriter& b, const Target& target, const CoupledSums& sums) {
  return RowSummer(b, target, sums).Run();
}

}  // namespace telegrad
