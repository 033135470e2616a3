// In an iteration of the loop over blocks, with r for rows and k for the keys of a block:
//
//   score[k, r]   the nest that computes scores, over a block
//   scale[r], m[r] = m' together: exp2((m - m') c), and m' = max(m, max over k of e(score[k, r]))
//   weight[k, r]  exp2((e(score[k, r]) - m[r]) c)
//   l[r]          l[r] scale[r] + sum over k of weight[k, r]
//   y[r, ...]     y[r, ...] scale[r] + sum over k of weight[k, r] v[k, ...], for each weighted sum
//
// m, l and y are filled before the loop and read after it. While m is -inf, 0 takes its place, so
// that weights are 0 and not exp2(-inf + inf). If it is -inf in the end, the sums are multiplied by
// exp2(inf), so that 0 becomes no number, as it does where the maximum is known from the beginning.
// Where the kernel subtracts s(m), such as 0 where m is not finite, they are multiplied by
// exp2((m - s(m)) c) in the end.
#include "engine/lowering/online.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/online_match.h"
#include "engine/lowering/online_terms.h"
#include "engine/lowering/order_sums.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"
#include "engine/lowering/workgroup_online.h"
#include "engine/lowering/workgroup_online_row.h"
#include "engine/types/machine_costs.h"

namespace telegrad {
namespace {

// The keys of a block. The last block begins earlier where they divide no row, and leaves out what
// it has in common with the one before, so what counts is how many keys all blocks have, what an
// update and a rescaling take for each of them, and that leaving out tests each key. 0: the row is
// hardly more than a block.
int64_t BlockOf(int64_t keys, const ScheduleCosts& costs) {
  const int64_t most = costs.row_block;
  int64_t block = 0;
  double least = 0;
  for (int64_t n = most; n >= most / 2; n -= costs.block_step) {
    const int64_t blocks = (keys + n - 1) / n;
    const double cost = static_cast<double>(blocks) *
                        (static_cast<double>(n) + costs.block_update) *
                        (keys % n == 0 ? 1 : costs.block_test);
    if (blocks < 2 || (block != 0 && cost >= least)) continue;
    block = n;
    least = cost;
  }
  return block;
}

class Summer {
 public:
  Summer(Rewriter& b, UOp sink, CoupledSums sums, const ScheduleCosts& costs)
      : b_(b),
        g_(*b.graph()),
        s_(std::move(sums)),
        terms_(b, s_),
        costs_(costs),
        next_range_(s_.next_range) {
    for (uint32_t id : PostOrder(sink)) {
      if (g_.op(id) == Op::kBuffer) next_slot_ = std::max(next_slot_, g_.at(id).buffer_slot() + 1);
    }
    for (const UOp memory : {s_.maximum_memory, s_.sum_memory}) Count(memory);
    for (const WeightedSum& sum : s_.sums) Count(sum.memory);
  }

  UOp Run() {
    const int64_t keys = SizeOf(s_.key);
    UOp many;
    if (s_.blocks.valid()) {
      many = JoinBlocks(keys);
    } else {
      block_ = BlockOf(keys, costs_);
      if (block_ == 0) return {};
      overlap_ = (block_ - keys % block_) % block_;
      many = g_.Index((keys + overlap_) / block_);
    }
    blocks_ = g_.Range(next_range_++, AxisType::kReduce, many);
    StoreScores();
    UpdateMaxima();
    StoreWeights();
    Replacements done;
    if (s_.sum_memory.valid()) AddSums(&done);
    for (const WeightedSum& sum : s_.sums) AddWeighted(sum, &done);
    After(s_.maximum_memory, maxima_done_, &done);
    return Finish(done);
  }

 private:
  // The number of blocks may be reduced, as where it asks whether all operands are bounded. Every
  // loop over joined blocks ends by it, so what is reduced is stored once, outside of all loops
  // over blocks, and loaded there.
  void StoreTests() {
    absl::flat_hash_set<uint32_t> seen;
    std::vector<UOp> stack{s_.blocks.src(0)};
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      if (!seen.insert(u.id()).second) continue;
      if (!u.is(Op::kReduce)) {
        for (int i = 0; i < u.num_src(); ++i) stack.push_back(u.src(i));
        continue;
      }
      const UOp memory = OfShared(u.dtype(), 1);
      const UOp stored = Store(memory, g_.Index(0), u);
      tests_[u.id()] = {Load(g_.Make(Op::kAfter, {memory, stored}), g_.Index(0)), {}};
    }
    many_ = Substitute(b_, s_.blocks.src(0), tests_);
  }

  // The blocks that the row is split into may end early each, so they are small. As many of them as
  // divide their number, and are no more keys than a block has else, are one here, so that maxima
  // and sums are updated once for these; the last ones it may not have. How many there are.
  UOp JoinBlocks(int64_t keys) {
    const int64_t most = SizeOf(s_.blocks);
    joined_ = std::max<int64_t>(1, costs_.row_block / keys);
    while (most % joined_ != 0) --joined_;
    block_ = joined_ * keys;
    if (joined_ == 1) return s_.blocks.src(0);
    StoreTests();
    const UOp up = b_.Make(Op::kAdd, {many_, g_.Index(joined_ - 1)});
    return b_.Make(Op::kFloorDiv, {up, g_.Index(joined_)});
  }
  // How many of them an iteration has: min(joined, many - joined * iteration).
  UOp Joined() {
    const UOp minus = g_.Index(-1);
    const UOp before = b_.Make(Op::kMul, {blocks_, g_.Index(joined_)});
    const UOp left = b_.Make(Op::kSub, {before, many_});
    return b_.Make(Op::kMul, {b_.Make(Op::kMax, {left, g_.Index(-joined_)}), minus});
  }

  // A place in a row and among the keys of a block.
  struct Place {
    UOp row, key = {};
    std::vector<UOp> keys = {};  // the loops over the keys of a block: two if blocks are joined
    Replacements at = {};        // for the ranges of the scores
    UOp again = {};              // whether the block before has had the key; invalid: it has not
  };

  void Count(UOp memory) {
    if (!memory.valid()) return;
    while (memory.is(Op::kAfter)) memory = memory.src(0);
    next_slot_ = std::max(next_slot_, memory.buffer_slot() + 1);
  }

  UOp Fresh(AxisType type, int64_t size) { return g_.Range(next_range_++, type, g_.Index(size)); }
  UOp FreshRow() { return s_.row.valid() ? Fresh(AxisType::kLoop, s_.rows()) : g_.Index(0); }

  // `together`: in one loop over the keys of joined blocks.
  Place PlaceAt(UOp row, AxisType type, bool together = false) {
    Place place{.row = row, .at = tests_};
    if (s_.row.valid()) place.at[s_.row.id()] = {row, {row}};
    const UOp size = g_.Index(block_ / joined_);
    const bool one = together && joined_ > 1;
    const UOp end = one ? b_.Make(Op::kMul, {Joined(), size}) : size;
    const UOp key = g_.Range(next_range_++, type, end);
    place.key = key;
    place.keys = {key};
    if (s_.blocks.valid()) {
      UOp block = b_.Make(Op::kMul, {blocks_, g_.Index(joined_)});
      if (joined_ > 1 && !one) {
        const UOp part = g_.Range(next_range_++, type, Joined());
        place.keys = {part, key};
        place.key = b_.Make(Op::kAdd, {b_.Make(Op::kMul, {part, size}), key});
        block = b_.Make(Op::kAdd, {block, part});
      }
      place.at[s_.blocks.id()] = {block, {}};
      place.at[s_.key.id()] = {key, {key}};
    } else {
      const UOp first = b_.Make(Op::kMul, {blocks_, g_.Index(block_)});
      UOp begin = first;
      if (overlap_ != 0) {  // min(first, keys - block)
        const UOp back = b_.Make(Op::kMul, {blocks_, g_.Index(-block_)});
        const UOp most = b_.Make(Op::kMax, {back, g_.Index(block_ - SizeOf(s_.key))});
        begin = b_.Make(Op::kMul, {most, g_.Index(-1)});
      }
      const UOp position = b_.Make(Op::kAdd, {begin, key});
      place.at[s_.key.id()] = {position, {key}};
      if (overlap_ != 0) place.again = b_.Make(Op::kCmpLt, {position, first});
    }
    return place;
  }

  UOp Nest(UOp store, UOp row, std::span<const UOp> keys = {}) {
    std::vector<UOp> src{store};
    if (row.is(Op::kRange)) src.push_back(row);
    src.insert(src.end(), keys.begin(), keys.end());
    return src.size() == 1 ? store : g_.Make(Op::kEnd, DType::kVoid, src);
  }
  UOp Store(UOp memory, UOp index, UOp value) {
    return g_.Make(Op::kStore, {g_.Make(Op::kIndex, {memory, index}), value});
  }
  UOp Load(UOp memory, UOp index) {
    return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {memory, index})});
  }
  UOp Reduce(ReduceKind kind, UOp body, const Place& place) {
    std::vector<UOp> src{body};
    src.insert(src.end(), place.keys.begin(), place.keys.end());
    return g_.Make(Op::kReduce, DType::kVoid, src, std::vector{static_cast<int64_t>(kind)});
  }

  // Memory of each iteration of the loops that all nests are in.
  UOp OfShared(DType dtype, int64_t elements, UOp inner = {}) {
    std::vector<UOp> src{
        g_.Make(Op::kBuffer, dtype, {},
                {static_cast<int64_t>(AddressSpace::kRegister), next_slot_++, elements})};
    src.insert(src.end(), s_.shared.begin(), s_.shared.end());
    if (inner.valid()) src.push_back(inner);
    return src.size() == 1 ? src[0] : g_.Make(Op::kAfter, DType::kVoid, src);
  }
  // Memory that each block has for itself.
  UOp OfBlock(DType dtype, int64_t elements) { return OfShared(dtype, elements, blocks_); }

  // `memory` in the loop over blocks, where it has `first` in the beginning.
  UOp Carried(UOp memory, std::span<const UOp> ranges, UOp first) {
    std::vector<UOp> fresh;
    for (const UOp range : ranges) fresh.push_back(Fresh(AxisType::kLoop, SizeOf(range)));
    std::vector<UOp> src{Store(memory, RowMajor(b_, fresh), first)};
    src.insert(src.end(), fresh.begin(), fresh.end());
    const UOp init = src.size() == 1 ? src[0] : g_.Make(Op::kEnd, DType::kVoid, src);
    return g_.Make(Op::kAfter, {memory, init, blocks_});
  }
  std::vector<UOp> Rows() const {
    return s_.row.valid() ? std::vector{s_.row} : std::vector<UOp>();
  }

  // Rows of a block lie side by side.
  UOp At(const Place& place) {
    return b_.Make(Op::kAdd, {b_.Make(Op::kMul, {place.key, g_.Index(s_.rows())}), place.row});
  }

  void StoreScores() {
    const UOp row = FreshRow();
    const Place place = PlaceAt(row, AxisType::kLoop);
    const UOp memory = OfBlock(s_.scores.dtype(), block_ * s_.rows());
    // In the order of the loops that they replace.
    std::vector<UOp> src{Store(memory, At(place), Substitute(b_, s_.scores, place.at))};
    for (const UOp range : s_.loops) {
      if (range == s_.key) {
        src.insert(src.end(), place.keys.begin(), place.keys.end());
      } else if (range != s_.blocks) {
        src.push_back(range == s_.row ? row : range);
      }
    }
    scores_ = g_.Make(Op::kAfter, {memory, g_.Make(Op::kEnd, DType::kVoid, src)});
  }

  // What the maximum is taken of.
  UOp Element(const Place& place) {
    Replacements with = place.at;
    with[s_.score.id()] = {Load(scores_, At(place)), {}};
    const UOp element = Substitute(b_, s_.element, with);
    return place.again.valid() ? b_.Make(Op::kWhere, {place.again, terms_.Lowest(), element})
                               : element;
  }

  void UpdateMaxima() {
    const UOp row = FreshRow();
    const Place place = PlaceAt(row, AxisType::kReduce);
    const UOp carried = Carried(s_.maximum_memory, Rows(), terms_.Lowest());
    const UOp old = Load(carried, row);
    const UOp most = Reduce(ReduceKind::kMax, Element(place), place);
    const UOp maximum = b_.Make(Op::kMax, {old, most});
    maxima_done_ = Nest(Store(carried, row, maximum), row);
    const UOp memory = OfBlock(s_.maximum.dtype(), s_.rows());
    const UOp scale = terms_.Rescaling(old, maximum);
    const UOp stored = Nest(Store(memory, row, scale), row);
    scales_ = g_.Make(Op::kAfter, {memory, stored});
  }

  void StoreWeights() {
    const UOp row = FreshRow();
    const Place place = PlaceAt(row, AxisType::kLoop);
    const UOp maximum = Load(g_.Make(Op::kAfter, {s_.maximum_memory, maxima_done_}), row);
    const UOp memory = OfBlock(s_.maximum.dtype(), block_ * s_.rows());
    const UOp weight = terms_.Exponential(Element(place), terms_.Shift(maximum));
    weights_ =
        g_.Make(Op::kAfter, {memory, Nest(Store(memory, At(place), weight), row, place.keys)});
  }

  // memory[at] = memory[at] scale[row] + sum over the block of `value` weighted.
  UOp Add(UOp memory, UOp at, const Place& place, UOp value) {
    const UOp weight = Load(weights_, At(place));
    const UOp body = value.valid() ? b_.Make(Op::kMul, {weight, value}) : weight;
    const UOp before = b_.Make(Op::kMul, {Load(memory, at), Load(scales_, place.row)});
    return Store(memory, at, b_.Make(Op::kAdd, {before, Reduce(ReduceKind::kAdd, body, place)}));
  }

  void After(UOp memory, UOp nest, Replacements* done) {
    const UOp all = g_.Make(Op::kEnd, {nest, blocks_});
    (*done)[memory.id()] = {g_.Make(Op::kAfter, {memory, all}), {}};
  }

  void AddSums(Replacements* done) {
    const Place place = PlaceAt(FreshRow(), AxisType::kReduce);
    const UOp memory = Carried(s_.sum_memory, Rows(), g_.ConstFloat(s_.maximum.dtype(), 0.0));
    After(s_.sum_memory, Nest(Add(memory, place.row, place, {}), place.row), done);
  }

  // Whether it depends on the block and the key by the position in the row alone, so that a key
  // behind a block is one of the next block.
  bool IsOfRow(UOp value) const {
    const int64_t size = SizeOf(s_.key);
    absl::flat_hash_set<uint32_t> seen;
    std::vector<UOp> stack{value};
    while (!stack.empty()) {
      const UOp u = stack.back();
      stack.pop_back();
      if (u == s_.key || u == s_.blocks) return false;
      if (!seen.insert(u.id()).second || u.is(Op::kRange)) continue;
      if (IsInt(u.dtype())) {
        const auto of_key = StrideOf(u, s_.key), of_block = StrideOf(u, s_.blocks);
        if (of_key && of_block && *of_block == *of_key * size) continue;
      }
      for (int i = 0; i < u.num_src(); ++i) stack.push_back(u.src(i));
    }
    return true;
  }

  // Whether bounds say of all that it loads that it is inside of its buffer.
  static bool IsInside(UOp value) {
    return std::ranges::all_of(PostOrder(value), [&](uint32_t id) {
      const UOp u = value.graph()->at(id);
      return !u.is(Op::kIndex) ||
             (u.src(1).vmin() >= 0 && u.src(1).vmax() < NumElements(Memory(u).shape()));
    });
  }

  void AddWeighted(const WeightedSum& sum, Replacements* done) {
    Replacements fresh;
    std::vector<UOp> loops;
    UOp row = g_.Index(0);
    for (const UOp range : sum.kept) {
      loops.push_back(Fresh(AxisType::kLoop, SizeOf(range)));
      fresh[range.id()] = {loops.back(), {loops.back()}};
      if (range == sum.row) row = loops.back();
    }
    Place place = PlaceAt(row, AxisType::kReduce, /*together=*/true);
    Replacements with = fresh;
    with.insert(place.at.begin(), place.at.end());
    UOp value = Substitute(b_, sum.value, with);
    if (joined_ > 1 && !(IsOfRow(sum.value) && IsInside(value))) {
      place = PlaceAt(row, AxisType::kReduce);
      with = fresh;
      with.insert(place.at.begin(), place.at.end());
      value = Substitute(b_, sum.value, with);
    }
    const UOp memory = Carried(sum.memory, sum.kept, g_.ConstFloat(sum.dtype, 0.0));
    if (place.again.valid()) {  // 0 times it may be no number
      value = b_.Make(Op::kWhere, {place.again, g_.ConstFloat(value.dtype(), 0.0), value});
    }
    std::vector<UOp> src{Add(memory, RowMajor(b_, loops), place, value)};
    src.insert(src.end(), loops.begin(), loops.end());
    const UOp nest = src.size() == 1 ? src[0] : g_.Make(Op::kEnd, DType::kVoid, src);
    After(sum.memory, nest, done);
  }

  // A weighted sum of a row divided by the sum of its weights. These are one for the greatest
  // score, so the reciprocal is in range, and it is taken once for all channels. Without any score
  // it is that of 0, and 0 times that is no number: what the correction would make of it.
  bool IsQuotient(UOp u) const {
    if (!u.is(Op::kFDiv) || s_.shift != s_.maximum || !s_.sum_memory.valid()) return false;
    const UOp x = u.src(0), y = u.src(1);
    if (!x.is(Op::kLoad) || !y.is(Op::kLoad) || Whole(y) != s_.sum_memory) return false;
    const auto sum = std::ranges::find(s_.sums, Whole(x), &WeightedSum::memory);
    return sum != s_.sums.end() && !sum->hides_rows && sum->dtype == s_.maximum.dtype();
  }
  UOp Quotient(UOp u, const Replacements& done) {
    const UOp sum = Substitute(b_, u.src(1), done);
    const UOp one = g_.ConstFloat(sum.dtype(), 1.0);
    return b_.Make(Op::kMul, {Substitute(b_, u.src(0), done), g_.Make(Op::kFDiv, {one, sum})});
  }
  static UOp Whole(UOp load) { return load.src(0).src(0); }

  UOp MaximumOf(UOp row) {
    return s_.row.valid() ? Substitute(b_, s_.maximum, {{s_.row.id(), {row, {}}}}) : s_.maximum;
  }

  UOp Finish(const Replacements& done) {
    std::vector<UOp> roots;
    for (const UOp root : s_.roots) {
      Replacements with = done;
      with.insert(tests_.begin(), tests_.end());
      for (uint32_t id : PostOrder(root)) {
        const UOp load = g_.at(id);
        if (IsQuotient(load)) with[id] = {Quotient(load, done), {}};
        if (!load.is(Op::kLoad)) continue;
        const UOp memory = load.src(0).src(0);
        UOp row = load.src(0).src(1);
        const auto sum = std::ranges::find(s_.sums, memory, &WeightedSum::memory);
        if (sum != s_.sums.end()) row = sum->row.valid() ? sum->row : g_.Index(0);
        if (memory != s_.sum_memory && sum == s_.sums.end()) continue;
        const bool hides_rows = sum != s_.sums.end() && sum->hides_rows;
        const UOp value = terms_.Corrected(load, MaximumOf(row), hides_rows);
        with[id] = {Substitute(b_, value, done), {}};
      }
      roots.push_back(Substitute(b_, root, with));
      if (!roots.back().valid()) return {};
    }
    return g_.Make(Op::kSink, DType::kVoid, roots);
  }

  Rewriter& b_;
  Graph& g_;
  const CoupledSums s_;
  OnlineTerms terms_;
  const ScheduleCosts& costs_;
  int64_t next_range_ = 0, next_slot_ = 0;
  int64_t block_ = 0, overlap_ = 0;  // keys
  int64_t joined_ = 1;               // blocks that the row was split into, in one here
  UOp many_;                         // of which the row has so many
  Replacements tests_;               // what reduces for that, by what is loaded in its place
  UOp blocks_;                       // the loop over blocks
  UOp maxima_done_;                  // the nest that updates the maxima
  UOp scores_, scales_, weights_;    // memory of a block, once it is filled
};

}  // namespace

UOp SumOnline(Rewriter& b, UOp sink, const Target& target) {
  if (KeepsOrder(target)) return sink;
  const Graph& g = *sink.graph();
  const std::vector<uint32_t> order = PostOrder(sink);
  if (std::ranges::none_of(order, [&](uint32_t id) { return g.op(id) == Op::kBuffer; }))
    return sink;
  std::optional<CoupledSums> sums = MatchCoupledSums(b, sink);
  if (!sums) return sink;
  UOp online;
  if (!target.has(ParallelLevel::kThreads)) {
    online = Summer(b, sink, *std::move(sums), CostsOf(target).schedule).Run();
  } else {
    online = sums->row.valid() ? SumOnlineTogether(b, target, *sums)
                               : SumOneRowTogether(b, target, *sums);
  }
  return online.valid() ? online : sink;
}

}  // namespace telegrad
