// Both factors of a sum of products are taken apart from the product down. What is stored of them
// is words of four bytes, each byte perhaps several times: where the rows and the window of a
// convolution do not step together, its patches are, unless words are made where they are read.
#include "engine/schedule/dot_sum.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/schedule/byte_products.h"

namespace telegrad {
namespace {

// A byte is stored at most so many times as often as the word that it is in is read: else its words
// are made where they are read, which takes no memory and about as long.
constexpr double kMostCopies = 2;

class DotFinder {
 public:
  DotFinder(UOp reduce, const std::vector<UOp>& loops, const RangeFacts& facts)
      : loops_(loops), reduce_(reduce), facts_(facts), g_(*reduce.graph()) {}

  std::optional<DotSum> Find(double least, const std::function<bool(int)>& is_weight) {
    for (size_t i = 0; i < 2; ++i) {
      std::optional<DotFactor> factor = DotFactorOf(reduce_.src(0).src(static_cast<int>(i)));
      if (!factor) return std::nullopt;
      out_.factors[i] = *std::move(factor);
      const UOp memory = out_.factors[i].load.src(0).src(0);
      out_.factors[i].weight =
          !out_.factors[i].gate.valid() && is_weight(static_cast<int>(memory.slot()));
    }
    // Of two that no kernel writes, the first one is most likely an input, and new in each run.
    if (out_.factors[1].weight) out_.factors[0].weight = false;
    if (!FindWord() || products_ < least) return std::nullopt;
    for (DotFactor& factor : out_.factors) {
      FindWalks(&factor);
      factor.stored = !factor.weight && IsReadOften(factor);
    }
    out_.loops = loops_;
    out_.reduce = reduce_;
    return std::move(out_);
  }

 private:
  bool Depends(UOp u, UOp range) const { return facts_[u].has(facts_.IndexOf(range)); }
  bool Reads(const DotFactor& f, UOp range) const {
    return Depends(f.load, range) || (f.gate.valid() && Depends(f.gate, range));
  }

  bool IsReduced(uint32_t ranges) const {
    for (int i = 1; i < reduce_.num_src(); ++i) {
      if ((ranges >> facts_.IndexOf(reduce_.src(i)) & 1) != 0) return true;
    }
    return false;
  }

  // The ranges that `root` is made of, but for the gates of single elements, which go to `gated`.
  uint32_t RangesOf(UOp root, std::vector<UOp>* gated) const {
    std::vector<uint32_t> ranges(root.id() + 1, 0);
    for (const uint32_t id : PostOrder(root)) {
      const UOp u = g_.at(id);
      const bool one =
          u.is(Op::kIndex) && u.num_src() == 3 && u.src(0).is(Op::kParam) && u.src(1).is_const();
      const bool load = u.is(Op::kLoad) && ranges[u.src(0).id()] == 0;
      if (u.is(Op::kRange)) ranges[id] = facts_[u].ranges;
      for (int i = 0; i < (one ? 2 : u.num_src()); ++i) ranges[id] |= ranges[u.src(i).id()];
      if (load && u.src(0).num_src() == 3) gated->push_back(u);
    }
    return ranges[root.id()];
  }

  std::optional<DotFactor> DotFactorOf(UOp u) const {
    DotFactor out;
    if (u.is(Op::kWhere) && u.src(2).is_const() && u.src(2).const_word() == 0) {
      out.gate = u.src(0);
      u = u.src(1);
    }
    if (u.is(Op::kAdd)) {
      const int other = u.src(1).is(Op::kCast) && IsReduced(RangesOf(u.src(1), &out.gated)) ? 0 : 1;
      out.gated.clear();
      out.added = u.src(other);
      u = u.src(1 - other);
      if (IsReduced(RangesOf(out.added, &out.gated))) return std::nullopt;
    }
    if (!u.is(Op::kCast) || !u.src(0).is(Op::kLoad)) return std::nullopt;
    out.load = u.src(0);
    if (out.load.dtype() != DType::kInt8 && out.load.dtype() != DType::kUInt8) return std::nullopt;
    if (!out.load.src(0).src(0).is(Op::kParam)) return std::nullopt;
    const bool hidden = out.load.src(0).num_src() == 3;
    if (!out.gate.valid() && hidden) {  // 0 there, which with the zero point is not 0
      if (out.added.valid()) return std::nullopt;
      out.gate = out.load.src(0).src(2);
    }
    return IsPlaced(out) && HidesZeroPoint(out) ? std::optional(out) : std::nullopt;
  }

  // Whether it is made of the loops and of what is reduced: nothing reduces the sum again.
  bool IsPlaced(const DotFactor& f) const {
    uint32_t known = 0;
    for (const UOp loop : loops_) known |= 1u << facts_.IndexOf(loop);
    for (int i = 1; i < reduce_.num_src(); ++i) known |= 1u << facts_.IndexOf(reduce_.src(i));
    uint32_t used = facts_[f.load].ranges;
    if (f.gate.valid()) used |= facts_[f.gate].ranges;
    return (used & ~known) == 0;
  }

  // Whether what takes the place of hidden elements, the zero point, is a byte, the same one for
  // all of them.
  bool HidesZeroPoint(const DotFactor& f) const {
    if (!f.gate.valid() || !f.added.valid()) return true;
    std::vector<UOp> gated;
    if (RangesOf(f.added, &gated) != 0) return false;
    const int64_t low = f.is_signed() ? -128 : 0;
    return f.added.vmax() <= -low && f.added.vmin() >= -(low + 255);
  }

  // Whether the range steps along the factor alone: no loop is in the middle of its steps, as that
  // over the places of a window is, whose words would overlap.
  bool StepsAlone(const DotFactor& f, UOp range) const {
    const NodeFacts& index = facts_[f.load.src(0).src(1)];
    const int64_t step = index.stride[static_cast<size_t>(facts_.IndexOf(range))];
    if (!index.linear || step == 0) return false;
    if (f.gate.valid() && Depends(f.gate, range)) return false;
    return std::ranges::none_of(loops_, [&](UOp loop) {
      const int64_t other = index.stride[static_cast<size_t>(facts_.IndexOf(loop))];
      return other != 0 && other % step == 0 && other / step < RangeFacts::Size(range);
    });
  }

  // The longest range that steps along both factors alone.
  bool FindWord() {
    products_ = 1;
    for (const UOp loop : loops_) products_ *= static_cast<double>(RangeFacts::Size(loop));
    for (int i = 1; i < reduce_.num_src(); ++i) {
      const UOp range = reduce_.src(i);
      out_.terms *= RangeFacts::Size(range);
      const int64_t least = out_.word.valid() ? RangeFacts::Size(out_.word) + 1 : kLeastDotTerms;
      if (RangeFacts::Size(range) < least) continue;
      if (StepsAlone(out_.factors[0], range) && StepsAlone(out_.factors[1], range))
        out_.word = range;
    }
    products_ *= static_cast<double>(out_.terms);
    return out_.word.valid();
  }

  // Whether all that `root` is depends on these ranges only through `a` * a's factor + `b` * b's.
  bool DependsOnSum(UOp root, int a, int64_t of_a, int b, int64_t of_b) const {
    std::vector<bool> good(root.id() + 1, false);
    for (const uint32_t id : PostOrder(root)) {
      const UOp u = g_.at(id);
      const NodeFacts& f = facts_[u];
      bool all = !u.is(Op::kRange);
      for (const uint32_t s : u.src_ids()) all &= good[s];
      const bool steps = f.linear && f.stride[static_cast<size_t>(a)] * of_b ==
                                         f.stride[static_cast<size_t>(b)] * of_a;
      good[id] = (!f.has(a) && !f.has(b)) || steps || all;
    }
    return good[root.id()];
  }

  std::optional<DotWalk> Together(const DotFactor& f, UOp loop, UOp tap) const {
    const NodeFacts& index = facts_[f.load.src(0).src(1)];
    if (!index.linear) return std::nullopt;
    const int l = facts_.IndexOf(loop), t = facts_.IndexOf(tap);
    const int64_t of_loop = index.stride[static_cast<size_t>(l)];
    const int64_t of_tap = index.stride[static_cast<size_t>(t)];
    if (of_loop <= 0 || of_tap <= 0) return std::nullopt;
    const bool loop_is_unit = of_tap % of_loop == 0;
    if (!loop_is_unit && of_loop % of_tap != 0) return std::nullopt;
    const DotWalk walk =
        loop_is_unit ? DotWalk{loop, tap, of_tap / of_loop} : DotWalk{tap, loop, of_loop / of_tap};
    if (walk.step > RangeFacts::Size(walk.unit)) return std::nullopt;
    if (!DependsOnSum(f.load, l, of_loop, t, of_tap)) return std::nullopt;
    if (f.gate.valid() && !DependsOnSum(f.gate, l, of_loop, t, of_tap)) return std::nullopt;
    return walk;
  }

  void FindWalks(DotFactor* factor) const {
    const DotFactor& f = *factor;
    std::vector<UOp> inside, outside;
    for (const UOp loop : loops_) {
      if (Reads(f, loop)) outside.push_back(loop);
    }
    for (int i = 1; i < reduce_.num_src(); ++i) {
      const UOp range = reduce_.src(i);
      if (range != out_.word && Reads(f, range)) inside.push_back(range);
    }
    factor->ranges = outside;
    factor->ranges.insert(factor->ranges.end(), inside.begin(), inside.end());
    factor->ranges.push_back(out_.word);
    std::vector<DotWalk> out{{out_.word, {}, 0}};
    for (const UOp tap : inside) {
      DotWalk best{tap, {}, 0};
      size_t of = outside.size();
      for (size_t i = 0; i < outside.size(); ++i) {
        const std::optional<DotWalk> walk = Together(f, outside[i], tap);
        if (!walk || (best.other.valid() && walk->step >= best.step)) continue;
        best = *walk;
        of = i;
      }
      if (of < outside.size()) outside.erase(outside.begin() + static_cast<std::ptrdiff_t>(of));
      out.push_back(best);
    }
    for (const UOp loop : outside) out.push_back({loop, {}, 0});
    const NodeFacts& index = facts_[f.load.src(0).src(1)];
    std::ranges::stable_sort(out, std::greater<>{}, [&](const DotWalk& walk) {
      return index.linear ? index.stride[static_cast<size_t>(facts_.IndexOf(walk.unit))] : 0;
    });
    factor->walks = std::move(out);
  }

  // Whether the factor's words are read as often as its bytes are stored, or nearly.
  bool IsReadOften(const DotFactor& f) const {
    const UOp address = f.load.src(0), index = address.src(1);
    const auto all = static_cast<double>(NumElements(address.src(0).shape()));
    const double reached = static_cast<double>(index.vmax()) - static_cast<double>(index.vmin());
    const double bytes = std::min(all, reached + 1);
    const auto words = static_cast<double>(out_.WordsOf(f));
    const double reads = products_ / static_cast<double>(RangeFacts::Size(out_.word)) *
                         static_cast<double>(out_.words());
    return kDotBytes * words / bytes <= kMostCopies * (reads / words);
  }

  const std::vector<UOp>& loops_;
  const UOp reduce_;
  const RangeFacts& facts_;
  const Graph& g_;
  DotSum out_;
  double products_ = 1;
};

}  // namespace

int64_t DotSum::WordsOf(const DotFactor& factor) const {
  int64_t count = 1;
  for (const DotWalk& walk : factor.walks) count *= SizeOf(walk);
  return count;
}

std::optional<DotSum> FindDotSum(UOp reduce, const std::vector<UOp>& loops, const RangeFacts& facts,
                                 double least, const std::function<bool(int argument)>& is_weight) {
  return DotFinder(reduce, loops, facts).Find(least, is_weight);
}

}  // namespace telegrad
