#include "engine/schedule/dot_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/schedule/byte_products.h"
#include "engine/schedule/range_facts.h"

namespace telegrad {
namespace {

constexpr int kDotBytes = 4;            // of a word
constexpr int64_t kLeastDotTerms = 8;   // along the range whose bytes lie in words
constexpr double kLeastDots = 1 << 15;  // that are worth more kernels
constexpr int64_t kOnes = 0x01010101;   // DOT4 with it adds up the bytes
constexpr int kFlip = 128;              // the upper bit of a byte

int64_t SizeOfRange(UOp range) { return RangeFacts::Size(range); }

// A factor: bytes that are loaded where a gate holds, else their zero point, and what is added.
struct DotFactor {
  UOp load, gate;  // the gate is invalid where there is none
  UOp added;       // i32, the zero point's negative; invalid: 0
  // Of `added`, where the factor's gate is one of theirs, too: they lie in memory in any case.
  std::vector<UOp> gated;
  bool is_signed() const { return load.dtype() == DType::kInt8; }
};

// Ranges of which a factor depends on the sum `unit` + step * `other` only, as the rows and the
// window of a convolution are; `other` is invalid where it is `unit` alone.
struct DotWalk {
  UOp unit, other;
  int64_t step = 0;
  int64_t size() const {
    return SizeOfRange(unit) + (other.valid() ? step * (SizeOfRange(other) - 1) : 0);
  }
};

class DotFinder {
 public:
  // Of the kernel `sink` in these loops, a sum of products of i32.
  DotFinder(UOp sink, const RangeFacts& ranges, std::vector<UOp> around, UOp sum)
      : loops(std::move(around)), reduce(sum), facts(&ranges), g_(*sink.graph()) {}

  bool Find() {
    for (size_t i = 0; i < 2; ++i) {
      const std::optional<DotFactor> factor = DotFactorOf(reduce.src(0).src(static_cast<int>(i)));
      if (!factor) return false;
      factors[i] = *factor;
    }
    return FindWord() && products_ >= kLeastDots;
  }

  bool Depends(UOp u, UOp range) const { return (*facts)[u].has(facts->IndexOf(range)); }
  // Of where the factor is read and what is read there.
  bool Reads(const DotFactor& f, UOp range) const {
    return Depends(f.load, range) || (f.gate.valid() && Depends(f.gate, range));
  }

  // How the factor is walked, the farthest steps first.
  std::vector<DotWalk> WalksOf(const DotFactor& f) const {
    std::vector<UOp> inside, outside;
    for (const UOp loop : loops) {
      if (Reads(f, loop)) outside.push_back(loop);
    }
    for (int i = 1; i < reduce.num_src(); ++i) {
      if (reduce.src(i) != word && Reads(f, reduce.src(i))) inside.push_back(reduce.src(i));
    }
    std::vector<DotWalk> out{{word, {}, 0}};
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
    const NodeFacts& index = (*facts)[f.load.src(0).src(1)];
    std::ranges::stable_sort(out, std::greater<>{}, [&](const DotWalk& walk) {
      return index.linear ? index.stride[static_cast<size_t>(facts->IndexOf(walk.unit))] : 0;
    });
    return out;
  }

  std::vector<UOp> loops;
  UOp reduce, word;  // the range whose bytes lie in words
  std::array<DotFactor, 2> factors;
  const RangeFacts* facts;
  int64_t terms = 1;

 private:
  bool IsReduced(uint32_t ranges) const {
    for (int i = 1; i < reduce.num_src(); ++i) {
      if ((ranges >> facts->IndexOf(reduce.src(i)) & 1) != 0) return true;
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
      if (u.is(Op::kRange)) ranges[id] = (*facts)[u].ranges;
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
    for (const UOp loop : loops) known |= 1u << facts->IndexOf(loop);
    for (int i = 1; i < reduce.num_src(); ++i) known |= 1u << facts->IndexOf(reduce.src(i));
    uint32_t used = (*facts)[f.load].ranges;
    if (f.gate.valid()) used |= (*facts)[f.gate].ranges;
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
    const NodeFacts& index = (*facts)[f.load.src(0).src(1)];
    const int64_t step = index.stride[static_cast<size_t>(facts->IndexOf(range))];
    if (!index.linear || step == 0) return false;
    if (f.gate.valid() && Depends(f.gate, range)) return false;
    return std::ranges::none_of(loops, [&](UOp loop) {
      const int64_t other = index.stride[static_cast<size_t>(facts->IndexOf(loop))];
      return other != 0 && other % step == 0 && other / step < SizeOfRange(range);
    });
  }

  // The longest range that steps along both factors alone.
  bool FindWord() {
    products_ = 1;
    for (const UOp loop : loops) products_ *= static_cast<double>(SizeOfRange(loop));
    for (int i = 1; i < reduce.num_src(); ++i) {
      const UOp range = reduce.src(i);
      terms *= SizeOfRange(range);
      const int64_t least = word.valid() ? SizeOfRange(word) + 1 : kLeastDotTerms;
      if (SizeOfRange(range) < least) continue;
      if (StepsAlone(factors[0], range) && StepsAlone(factors[1], range)) word = range;
    }
    products_ *= static_cast<double>(terms);
    return word.valid();
  }

  // Whether all that `root` is depends on these ranges only through `a` * a's factor + `b` * b's.
  bool DependsOnSum(UOp root, int a, int64_t of_a, int b, int64_t of_b) const {
    std::vector<bool> good(root.id() + 1, false);
    for (const uint32_t id : PostOrder(root)) {
      const UOp u = g_.at(id);
      const NodeFacts& f = (*facts)[u];
      bool all = !u.is(Op::kRange);
      for (const uint32_t s : u.src_ids()) all &= good[s];
      const bool steps = f.linear && f.stride[static_cast<size_t>(a)] * of_b ==
                                         f.stride[static_cast<size_t>(b)] * of_a;
      good[id] = (!f.has(a) && !f.has(b)) || steps || all;
    }
    return good[root.id()];
  }

  std::optional<DotWalk> Together(const DotFactor& f, UOp loop, UOp tap) const {
    const NodeFacts& index = (*facts)[f.load.src(0).src(1)];
    if (!index.linear) return std::nullopt;
    const int l = facts->IndexOf(loop), t = facts->IndexOf(tap);
    const int64_t of_loop = index.stride[static_cast<size_t>(l)];
    const int64_t of_tap = index.stride[static_cast<size_t>(t)];
    if (of_loop <= 0 || of_tap <= 0) return std::nullopt;
    const bool loop_is_unit = of_tap % of_loop == 0;
    if (!loop_is_unit && of_loop % of_tap != 0) return std::nullopt;
    const DotWalk walk =
        loop_is_unit ? DotWalk{loop, tap, of_tap / of_loop} : DotWalk{tap, loop, of_loop / of_tap};
    if (walk.step > SizeOfRange(walk.unit)) return std::nullopt;
    if (!DependsOnSum(f.load, l, of_loop, t, of_tap)) return std::nullopt;
    if (f.gate.valid() && !DependsOnSum(f.gate, l, of_loop, t, of_tap)) return std::nullopt;
    return walk;
  }

  const Graph& g_;
  double products_ = 1;
};

class Dotter {
 public:
  // Kernels and temporaries are added to `out`.
  Dotter(const Graph& from, int64_t next_range, DotFinder f,
         const std::function<bool(int)>& is_weight, KernelParts* out)
      : from_(from),
        next_range_(next_range),
        f_(std::move(f)),
        out_(*out),
        words_((SizeOfRange(f.word) + kDotBytes - 1) / kDotBytes) {
    for (size_t i = 0; i < 2; ++i) {
      const DotFactor& factor = f.factors[i];
      weight_[i] =
          !factor.gate.valid() && is_weight(static_cast<int>(factor.load.src(0).src(0).arg(0)));
    }
    // Of two that no kernel writes, the first one is most likely an input, and new in each run.
    if (weight_[1]) weight_[0] = false;
    // DOT4's first factor is unsigned: of two that are alike, one is flipped.
    const bool first = f.factors[0].is_signed(), second = f.factors[1].is_signed();
    unsigned_ = first ? 1 : 0;
    if (first && second) unsigned_ = weight_[1] ? 0 : 1;
    if (!first && !second) unsigned_ = 1 - Flipped();
  }

  UOp reduce() const { return f_.reduce; }

  absl::Status StoreFactors() {
    for (size_t i = 0; i < 2; ++i) {
      if (weight_[i]) continue;
      TG_RETURN_IF_ERROR(Add(StoreWords(i)));
    }
    for (size_t i = 0; i < 2; ++i) {
      if (weight_[i] || IsZero(1 - i)) continue;
      TG_RETURN_IF_ERROR(Add(StoreSums(i)));
    }
    return absl::OkStatus();
  }

  // The REDUCE in a kernel that reads what StoreFactors' kernels have stored.
  UOp Total(PartWriter& k) const {
    Graph& g = k.g();
    const UOp number = k.Reduced(words_);
    std::array<UOp, 2> word;
    for (size_t i = 0; i < 2; ++i) {
      word[i] = weight_[i] ? Word(k, i, {}, number) : Stored(k, i, {}, number);
    }
    UOp total = k.Sum(Dot(k, word[unsigned_], word[1 - unsigned_]), Reduced(k, number));
    for (size_t i = 0; i < 2; ++i) {
      if (IsZero(1 - i)) continue;
      const UOp sum = weight_[i]
                          ? SumsOfWeight(k, i)
                          : k.Load(k.Param(sums_[i], SumsOf(i), DType::kInt32), SumPlace(k, i));
      total = g.Make(Op::kAdd, {total, g.Make(Op::kMul, {sum, Zero(k, 1 - i)})});
    }
    if (IsZero(0) || IsZero(1)) return total;
    const UOp zeros = g.Make(Op::kMul, {Zero(k, 0), Zero(k, 1)});
    return g.Make(Op::kAdd, {total, Scaled(k, zeros, f_.terms)});
  }

 private:
  // Of two unsigned factors. The sums of a weight cost nothing, so its zero point should be 0
  // afterwards or stay it, rather than that of what changes with each run.
  size_t Flipped() const {
    const size_t weight = weight_[1] ? 1 : 0;
    const auto adds = [&](size_t i, int64_t value) {
      const UOp z = f_.factors[i].added;
      return !z.valid() ? value == 0 : z.is_const() && z.const_word() == value;
    };
    if (adds(weight, -kFlip)) return weight;
    return adds(weight, 0) || adds(1 - weight, -kFlip) ? 1 - weight : weight;
  }

  bool IsFlipped(size_t i) const { return f_.factors[i].is_signed() == (i == unsigned_); }
  // What is added to the bytes as DOT4 reads them, less what the kernel adds: their zero point
  // moves with them.
  int64_t Moved(size_t i) const { return !IsFlipped(i) ? 0 : i == unsigned_ ? -kFlip : kFlip; }
  bool IsZero(size_t i) const {
    const UOp z = f_.factors[i].added;
    if (z.valid() && !z.is_const()) return false;
    return (z.valid() ? z.const_word() : 0) + Moved(i) == 0;
  }
  // What the kernel adds to the bytes.
  UOp Added(PartWriter& k, size_t i) const {
    PartWriter::Replaced with;
    for (const UOp load : f_.factors[i].gated) {
      const UOp address = load.src(0);
      const UOp memory = k.Copy(address.src(0), {}, {}), index = k.Copy(address.src(1), {}, {});
      with[load.id()] = k.Load(memory, index);
    }
    return k.Copy(f_.factors[i].added, with, {});
  }
  UOp Zero(PartWriter& k, size_t i) const {
    const UOp z = f_.factors[i].added;
    const UOp moved = k.g().Const(DType::kInt32, Moved(i));
    if (!z.valid()) return moved;
    const UOp copy = Added(k, i);
    return Moved(i) == 0 ? copy : k.g().Make(Op::kAdd, {copy, moved});
  }

  absl::Status Add(absl::StatusOr<KernelPart> part) {
    if (!part.ok()) return part.status();
    out_.kernels.push_back(*std::move(part));
    return absl::OkStatus();
  }
  int Temporary(int64_t elements) {
    out_.temporaries.push_back(elements);
    return ~static_cast<int>(out_.temporaries.size() - 1);
  }

  // The bits of byte number `position` of a factor in the lowest 8 of an i32, as DOT4 reads them.
  UOp Byte(PartWriter& k, size_t i, PartWriter::Replaced with, UOp position, UOp inside) const {
    const DotFactor& f = f_.factors[i];
    Graph& g = k.g();
    const auto constant = [&](int64_t value) { return g.Const(DType::kInt32, value); };
    const auto low = [&](UOp x) { return g.Make(Op::kAnd, {x, constant(255)}); };
    with[f_.word.id()] = position;
    UOp byte = k.Copy(f.load, with, inside);
    byte = g.Make(Op::kCast, DType::kInt32, {byte}, {});
    if (f.is_signed()) byte = low(byte);
    if (f.gate.valid()) {
      UOp zero = constant(0);
      if (f.added.valid()) {
        zero = low(g.Make(Op::kMul, {Added(k, i), constant(-1)}));
      }
      byte = g.Make(Op::kWhere, {k.Copy(f.gate, with, {}), byte, zero});
    }
    if (IsFlipped(i)) byte = g.Make(Op::kXor, {byte, constant(kFlip)});
    if (inside.valid() && (f.gate.valid() || IsFlipped(i))) {
      byte = g.Make(Op::kWhere, {inside, byte, constant(0)});
    }
    return byte;
  }

  UOp Word(PartWriter& k, size_t i, const PartWriter::Replaced& with, UOp number) const {
    Graph& g = k.g();
    UOp word;
    for (int b = 0; b < kDotBytes; ++b) {
      const UOp position = k.Plus(k.Times(number, kDotBytes), b);
      const bool beyond = kDotBytes * (words_ - 1) + b >= SizeOfRange(f_.word);
      const UOp inside = beyond ? k.Less(position, SizeOfRange(f_.word)) : UOp();
      UOp byte = Byte(k, i, with, position, inside);
      if (b > 0) byte = g.Make(Op::kShl, {byte, g.Const(DType::kInt32, 8 * b)});
      word = word.valid() ? g.Make(Op::kOr, {word, byte}) : byte;
    }
    return word;
  }

  int64_t SizeOfWalk(const DotWalk& walk) const {
    return walk.unit == f_.word ? words_ : walk.size();
  }
  // The place among the words that a walk of these positions leads to.
  UOp Place(PartWriter& k, const std::vector<DotWalk>& walks, std::span<const UOp> at) const {
    UOp place = k.g().Index(0);
    for (size_t w = 0; w < walks.size(); ++w) {
      place = k.Add(k.Times(place, SizeOfWalk(walks[w])), at[w]);
    }
    return place;
  }
  // The word that a product in the kernel's ranges reads.
  UOp Stored(PartWriter& k, size_t i, const PartWriter::Replaced& with, UOp number) const {
    const std::vector<DotWalk> walks = f_.WalksOf(f_.factors[i]);
    std::vector<UOp> at;
    for (const DotWalk& walk : walks) {
      UOp place = walk.unit == f_.word ? number : k.Copy(walk.unit, with, {});
      if (walk.other.valid()) {
        place = k.Add(place, k.Times(k.Copy(walk.other, with, {}), walk.step));
      }
      at.push_back(place);
    }
    return k.Load(k.Param(stored_[i], Words(walks), DType::kInt32), Place(k, walks, at));
  }
  int64_t Words(const std::vector<DotWalk>& walks) const {
    int64_t words = 1;
    for (const DotWalk& walk : walks) words *= SizeOfWalk(walk);
    return words;
  }

  absl::StatusOr<KernelPart> StoreWords(size_t i) {
    const std::vector<DotWalk> walks = f_.WalksOf(f_.factors[i]);
    stored_[i] = Temporary(Words(walks));
    PartWriter k(from_, next_range_);
    const UOp memory = k.Param(stored_[i], Words(walks), DType::kInt32);
    std::vector<UOp> at;
    PartWriter::Replaced with;
    UOp number;
    for (const DotWalk& walk : walks) {
      at.push_back(k.Loop(SizeOfWalk(walk)));
      if (walk.unit == f_.word) {
        number = at.back();
        continue;
      }
      with[walk.unit.id()] = at.back();
      if (walk.other.valid()) with[walk.other.id()] = k.g().Index(0);
    }
    const UOp to = k.g().Make(Op::kIndex, {memory, Place(k, walks, at)});
    k.Store(to, Word(k, i, with, number), at);
    return k.Finish("stores four bytes in a word, for sums of products of bytes");
  }

  // The ranges of the reduction that are left, and in place of the one of bytes, one of words.
  std::vector<UOp> Reduced(PartWriter& k, UOp number) const {
    std::vector<UOp> reduced;
    for (int r = 1; r < f_.reduce.num_src(); ++r) {
      const UOp range = f_.reduce.src(r);
      reduced.push_back(range == f_.word ? number : k.Copy(range, {}, {}));
    }
    return reduced;
  }
  // x is unsigned, y signed.
  UOp Dot(PartWriter& k, UOp x, UOp y) const {
    return k.g().Make(Op::kDot4, {x, y, k.g().Const(DType::kInt32, 0)});
  }

  // Of a factor's bytes, for each iteration of its loops.
  std::vector<UOp> LoopsOf(size_t i) const {
    std::vector<UOp> out;
    for (const UOp loop : f_.loops) {
      if (f_.Reads(f_.factors[i], loop)) out.push_back(loop);
    }
    return out;
  }
  UOp SumPlace(PartWriter& k, size_t i) const {
    UOp place = k.g().Index(0);
    for (const UOp loop : LoopsOf(i)) {
      place = k.Add(k.Times(place, SizeOfRange(loop)), k.Copy(loop, {}, {}));
    }
    return place;
  }
  int64_t SumsOf(size_t i) const {
    int64_t n = 1;
    for (const UOp loop : LoopsOf(i)) n *= SizeOfRange(loop);
    return n;
  }

  absl::StatusOr<KernelPart> StoreSums(size_t i) {
    sums_[i] = Temporary(SumsOf(i));
    PartWriter k(from_, next_range_);
    const UOp memory = k.Param(sums_[i], SumsOf(i), DType::kInt32);
    const UOp number = k.Reduced(words_);
    const UOp word = Stored(k, i, {}, number);
    const UOp ones = k.g().Const(DType::kInt32, kOnes);
    const UOp terms = i == unsigned_ ? Dot(k, word, ones) : Dot(k, ones, word);
    std::vector<UOp> loops;
    for (const UOp loop : LoopsOf(i)) loops.push_back(k.Copy(loop, {}, {}));
    k.Store(k.g().Make(Op::kIndex, {memory, SumPlace(k, i)}), k.Sum(terms, Reduced(k, number)),
            loops);
    return k.Finish("adds up bytes, for their product with a zero point");
  }

  // In ranges of their own, so that they are an argument of the kernel.
  UOp SumsOfWeight(PartWriter& k, size_t i) const {
    PartWriter::Replaced with;
    std::vector<UOp> reduced;
    int64_t missing = 1;  // ranges that only the other factor has
    for (int r = 1; r < f_.reduce.num_src(); ++r) {
      const UOp range = f_.reduce.src(r);
      if (!f_.Reads(f_.factors[i], range)) {
        missing *= SizeOfRange(range);
        continue;
      }
      reduced.push_back(k.Reduced(SizeOfRange(range)));
      with[range.id()] = reduced.back();
    }
    const UOp byte = k.Copy(f_.factors[i].load, with, {});
    const UOp sum = k.Sum(k.g().Make(Op::kCast, DType::kInt32, {byte}, {}), reduced);
    const int64_t moved = -Moved(i) * f_.terms;
    return k.g().Make(Op::kAdd, {Scaled(k, sum, missing), k.g().Const(DType::kInt32, moved)});
  }
  UOp Scaled(PartWriter& k, UOp x, int64_t by) const {
    return by == 1 ? x : k.g().Make(Op::kMul, {x, k.g().Const(DType::kInt32, by)});
  }

  const Graph& from_;
  const int64_t next_range_;
  const DotFinder f_;
  KernelParts& out_;
  const int64_t words_;
  size_t unsigned_ = 0;
  std::array<bool, 2> weight_ = {};
  std::array<int, 2> stored_ = {}, sums_ = {};
};

// The loops that all STOREs of the kernel are in, around nothing else; none: it has others.
std::vector<UOp> LoopsOfStores(UOp sink) {
  std::vector<UOp> loops;
  for (const uint32_t id : sink.src_ids()) {
    const UOp end = sink.graph()->at(id);
    if (!end.is(Op::kEnd) || !end.src(0).is(Op::kStore)) return {};
    std::vector<UOp> around;
    for (int i = 1; i < end.num_src(); ++i) around.push_back(end.src(i));
    if (!loops.empty() && around != loops) return {};
    loops = std::move(around);
  }
  return loops;
}

bool IsSumOfIntegers(UOp u) {
  return u.is(Op::kReduce) && u.dtype() == DType::kInt32 &&
         u.arg(0) == static_cast<int64_t>(ReduceKind::kAdd) && u.src(0).is(Op::kMul);
}

// The kernel with the sums that `dots` are of, after the kernels that store their factors.
absl::Status Multiply(UOp sink, int64_t next_range, const std::vector<Dotter>& dots,
                      KernelParts* out) {
  const Graph& from = *sink.graph();
  PartWriter k(from, next_range);
  for (const uint32_t id : sink.src_ids()) {  // the slots that it stores to first
    k.Copy(from.at(id).src(0).src(0).src(0), {}, {});
  }
  PartWriter::Replaced with;
  for (const Dotter& dot : dots) with[dot.reduce().id()] = dot.Total(k);
  TG_ASSIGN_OR_RETURN(KernelPart part, k.Copied(sink, with, "adds products of four bytes at once"));
  out->kernels.push_back(std::move(part));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<KernelParts>> AddBytes(const FrozenGraph& kernel,
                                                    const std::function<bool(int)>& is_weight) {
  const UOp sink = kernel.root();
  const std::vector<UOp> loops = LoopsOfStores(sink);
  const std::optional<RangeFacts> facts = RangeFacts::Of(sink);
  if (loops.empty() || !facts) return std::nullopt;
  int64_t next_range = 0;
  std::vector<DotFinder> found;
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = kernel.graph->at(id);
    if (u.is(Op::kRange)) next_range = std::max(next_range, u.arg(0) + 1);
    if (!IsSumOfIntegers(u)) continue;
    DotFinder finder(sink, *facts, loops, u);
    if (finder.Find()) found.push_back(std::move(finder));
  }
  if (found.empty()) return std::nullopt;
  KernelParts out;
  std::vector<Dotter> dots;
  for (DotFinder& finder : found) {
    dots.emplace_back(*kernel.graph, next_range, std::move(finder), is_weight, &out);
    TG_RETURN_IF_ERROR(dots.back().StoreFactors());
  }
  TG_RETURN_IF_ERROR(Multiply(sink, next_range, dots, &out));
  return out;
}

// The kernel with its sums of products of small integers in f32, where each of them is exact.
absl::StatusOr<std::optional<KernelParts>> SumInFloat(const FrozenGraph& kernel) {
  const Graph& from = *kernel.graph;
  PartWriter k(from);
  PartWriter::Replaced with;
  for (const uint32_t id : PostOrder(kernel.root())) {
    const UOp u = from.at(id);
    if (!IsSumOfIntegers(u)) continue;
    int64_t left = ExactTerms(u.src(0).src(0), u.src(0).src(1));
    std::vector<UOp> ranges;
    for (int i = 1; i < u.num_src(); ++i) {
      left /= std::max<int64_t>(u.src(i).src(0).vmax(), 1);
      ranges.push_back(k.Copy(u.src(i), with, {}));
    }
    if (left == 0) continue;
    const auto factor = [&](int i) {
      return k.g().Make(Op::kCast, DType::kFloat32, {k.Copy(u.src(0).src(i), with, {})}, {});
    };
    const UOp x = factor(0), y = factor(1);
    const UOp sum = k.Sum(k.g().Make(Op::kMul, {x, y}), ranges);
    with[id] = k.g().Make(Op::kCast, DType::kInt32, {sum}, {});
  }
  if (with.empty()) return std::nullopt;
  KernelParts out;
  TG_ASSIGN_OR_RETURN(KernelPart part, k.Copied(kernel.root(), with, "adds up integers in f32"));
  out.kernels.push_back(std::move(part));
  return out;
}

}  // namespace

absl::StatusOr<std::optional<KernelParts>> UseDots(
    const FrozenGraph& kernel, const std::function<bool(int argument)>& is_weight,
    const ScheduleOptions& options, Budget* budget) {
  if (!options.dots) return std::nullopt;
  TG_ASSIGN_OR_RETURN(std::optional<KernelParts> parts, AddBytes(kernel, is_weight));
  if (!parts) return SumInFloat(kernel);
  TG_RETURN_IF_ERROR(budget->SpendKernels(static_cast<int64_t>(parts->kernels.size()) - 1));
  return parts;
}

}  // namespace telegrad
