#include "engine/schedule/dot_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/schedule/dot_sum.h"
#include "engine/schedule/float_sums.h"
#include "engine/schedule/range_facts.h"

namespace telegrad {
namespace {

constexpr int64_t kOnes = 0x01010101;  // DOT4 with it adds up the bytes
constexpr int kFlip = 128;             // the upper bit of a byte

class Dotter {
 public:
  // Kernels and temporaries are added to `out`.
  Dotter(const Graph& from, int64_t next_range, DotSum sum, KernelParts* out)
      : from_(from), next_range_(next_range), f_(std::move(sum)), out_(*out), words_(f_.words()) {
    // DOT4's first factor is unsigned: of two that are alike, one is flipped.
    const bool first = f_.factors[0].is_signed(), second = f_.factors[1].is_signed();
    unsigned_ = first ? 1 : 0;
    if (first && second) unsigned_ = f_.factors[1].weight ? 0 : 1;
    if (!first && !second) unsigned_ = 1 - Flipped();
  }

  UOp reduce() const { return f_.reduce; }

  absl::Status StoreFactors() {
    for (size_t i = 0; i < 2; ++i) {
      if (!f_.factors[i].stored) continue;
      TG_RETURN_IF_ERROR(Add(StoreWords(i)));
    }
    for (size_t i = 0; i < 2; ++i) {
      if (f_.factors[i].weight || IsZero(1 - i)) continue;
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
      word[i] = WordAt(k, i, number);
    }
    UOp total = k.Sum(Dot(k, word[unsigned_], word[1 - unsigned_]), Reduced(k, number));
    for (size_t i = 0; i < 2; ++i) {
      if (IsZero(1 - i)) continue;
      const UOp sum = f_.factors[i].weight
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
    const size_t weight = f_.factors[1].weight ? 1 : 0;
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
      const bool beyond = kDotBytes * (words_ - 1) + b >= RangeFacts::Size(f_.word);
      const UOp inside = beyond ? k.Less(position, RangeFacts::Size(f_.word)) : UOp();
      UOp byte = Byte(k, i, with, position, inside);
      if (b > 0) byte = g.Make(Op::kShl, {byte, g.Const(DType::kInt32, 8 * b)});
      word = word.valid() ? g.Make(Op::kOr, {word, byte}) : byte;
    }
    return word;
  }

  // The place among the words that a walk of these positions leads to.
  UOp Place(PartWriter& k, const std::vector<DotWalk>& walks, std::span<const UOp> at) const {
    UOp place = k.g().Index(0);
    for (size_t w = 0; w < walks.size(); ++w) {
      place = k.Add(k.Times(place, f_.SizeOf(walks[w])), at[w]);
    }
    return place;
  }
  // The word that a product in the kernel's ranges reads.
  UOp WordAt(PartWriter& k, size_t i, UOp number) const {
    if (!f_.factors[i].stored) return Word(k, i, {}, number);
    const std::vector<DotWalk>& walks = f_.factors[i].walks;
    std::vector<UOp> at;
    for (const DotWalk& walk : walks) {
      UOp place = walk.unit == f_.word ? number : k.Copy(walk.unit, {}, {});
      if (walk.other.valid()) {
        place = k.Add(place, k.Times(k.Copy(walk.other, {}, {}), walk.step));
      }
      at.push_back(place);
    }
    return k.Load(k.Param(stored_[i], f_.WordsOf(f_.factors[i]), DType::kInt32),
                  Place(k, walks, at));
  }
  absl::StatusOr<KernelPart> StoreWords(size_t i) {
    const std::vector<DotWalk>& walks = f_.factors[i].walks;
    stored_[i] = Temporary(f_.WordsOf(f_.factors[i]));
    PartWriter k(from_, next_range_);
    const UOp memory = k.Param(stored_[i], f_.WordsOf(f_.factors[i]), DType::kInt32);
    std::vector<UOp> at;
    PartWriter::Replaced with;
    UOp number;
    for (const DotWalk& walk : walks) {
      at.push_back(k.Loop(f_.SizeOf(walk)));
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
      if (f_.factors[i].Reads(loop)) out.push_back(loop);
    }
    return out;
  }
  UOp SumPlace(PartWriter& k, size_t i) const {
    UOp place = k.g().Index(0);
    for (const UOp loop : LoopsOf(i)) {
      place = k.Add(k.Times(place, RangeFacts::Size(loop)), k.Copy(loop, {}, {}));
    }
    return place;
  }
  int64_t SumsOf(size_t i) const {
    int64_t n = 1;
    for (const UOp loop : LoopsOf(i)) n *= RangeFacts::Size(loop);
    return n;
  }

  absl::StatusOr<KernelPart> StoreSums(size_t i) {
    sums_[i] = Temporary(SumsOf(i));
    PartWriter k(from_, next_range_);
    const UOp memory = k.Param(sums_[i], SumsOf(i), DType::kInt32);
    const UOp number = k.Reduced(words_);
    const UOp word = WordAt(k, i, number);
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
      if (!f_.factors[i].Reads(range)) {
        missing *= RangeFacts::Size(range);
        continue;
      }
      reduced.push_back(k.Reduced(RangeFacts::Size(range)));
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
  const DotSum f_;
  KernelParts& out_;
  const int64_t words_;
  size_t unsigned_ = 0;
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

absl::StatusOr<std::optional<KernelParts>> AddBytes(const FrozenGraph& kernel, double least,
                                                    const std::function<bool(int)>& is_weight) {
  const UOp sink = kernel.root();
  const std::vector<UOp> loops = LoopsOfStores(sink);
  const std::optional<RangeFacts> facts = RangeFacts::Of(sink);
  if (loops.empty() || !facts) return std::nullopt;
  int64_t next_range = 0;
  std::vector<DotSum> found;
  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = kernel.graph->at(id);
    if (u.is(Op::kRange)) next_range = std::max(next_range, u.range_id() + 1);
    if (!SumsIntegers(u)) continue;
    std::optional<DotSum> sum = FindDotSum(u, loops, *facts, least, is_weight);
    if (sum) found.push_back(*std::move(sum));
  }
  if (found.empty()) return std::nullopt;
  KernelParts out;
  std::vector<Dotter> dots;
  for (DotSum& sum : found) {
    dots.emplace_back(*kernel.graph, next_range, std::move(sum), &out);
    TG_RETURN_IF_ERROR(dots.back().StoreFactors());
  }
  TG_RETURN_IF_ERROR(Multiply(sink, next_range, dots, &out));
  return out;
}

}  // namespace

absl::StatusOr<std::optional<KernelParts>> UseDots(
    const FrozenGraph& kernel, const std::function<bool(int argument)>& is_weight,
    const ScheduleOptions& options, Budget* budget) {
  if (!options.dots) return std::nullopt;
  TG_ASSIGN_OR_RETURN(std::optional<KernelParts> parts,
                      AddBytes(kernel, options.machine->schedule.dots, is_weight));
  if (!parts) return AddIntegersInFloat(kernel);
  TG_RETURN_IF_ERROR(budget->SpendKernels(static_cast<int64_t>(parts->kernels.size()) - 1));
  return parts;
}

}  // namespace telegrad
