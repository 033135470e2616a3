// The names are those of row_nests.h. In the first kernel, which has the same nests, there are no
// weights but the exponentials. In the second one f is of the sum. A part without a score adds up
// zeros, times the values; so its own g(m) is 0, and that of the row where its sums are scaled.
#include "engine/schedule/split_rows.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "engine/base/strings.h"
#include "engine/schedule/range_facts.h"
#include "engine/schedule/row_nests.h"

namespace telegrad {
namespace {

constexpr int kMaxima = ~0, kSums = ~1, kWeighted = ~2;  // the temporaries

class RowSplitter {
 public:
  RowSplitter(const FrozenGraph& kernel, const RowNests& nests, const Target& target)
      : sink_(kernel.root()), g_(*kernel.graph), n_(nests), target_(target) {}

  // Into how many parts.
  int64_t Parts() const {
    const GroupCosts& costs = CostsOf(target_).group;
    const int64_t keys = n_.keys();
    int64_t parts = 1;
    while (n_.rows * parts < costs.resident * target_.threads && keys % (2 * parts) == 0 &&
           keys / (2 * parts) >= costs.part_keys) {
      parts *= 2;
    }
    return n_.rows >= target_.threads ? 1 : parts;
  }

  absl::StatusOr<KernelParts> Split(int64_t parts) const {
    const int64_t numbers = parts * n_.rows;
    KernelParts out{.kernels = {}, .temporaries = {numbers, numbers, numbers * n_.channels()}};
    TG_ASSIGN_OR_RETURN(KernelPart first, MakeParts(parts));
    TG_ASSIGN_OR_RETURN(KernelPart second, Join(parts));
    out.kernels.push_back(std::move(first));
    out.kernels.push_back(std::move(second));
    return out;
  }

 private:
  // What makes a kernel of which some loops are copied.
  struct Loops {
    std::vector<UOp> shared;
    UOp row;  // the number of the row
  };
  Loops CopyLoops(PartWriter& k) const {
    Loops loops{.shared = {}, .row = k.g().Index(0)};
    for (const UOp loop : n_.shared) {
      loops.shared.push_back(k.Copy(loop, {}, {}));
      loops.row = k.Add(k.Times(loops.row, RangeFacts::Size(loop)), loops.shared.back());
    }
    return loops;
  }
  static UOp Reduce(PartWriter& k, ReduceKind kind, UOp value, UOp range) {
    const int64_t arg[] = {static_cast<int64_t>(kind)};
    return k.g().Make(Op::kReduce, DType::kVoid, std::array{value, range}, arg);
  }
  static UOp Lowest(PartWriter& k) {
    return k.g().ConstFloat(DType::kFloat32, -std::numeric_limits<double>::infinity());
  }
  static UOp Store(PartWriter& k, UOp memory, UOp at, UOp value) {
    return k.g().Make(Op::kStore, {k.g().Make(Op::kIndex, {memory, at}), value});
  }
  static UOp End(PartWriter& k, UOp effect, std::span<const UOp> loops) {
    std::vector<UOp> src{effect};
    src.insert(src.end(), loops.begin(), loops.end());
    return k.g().Make(Op::kEnd, DType::kVoid, src);
  }

  absl::StatusOr<KernelPart> MakeParts(int64_t parts) const {
    PartWriter k(g_, NextRange());
    Graph& g = k.g();
    const int64_t keys = n_.keys() / parts, numbers = parts * n_.rows;
    const UOp maxima = k.Param(kMaxima, numbers), sums = k.Param(kSums, numbers),
              weighted = k.Param(kWeighted, numbers * n_.channels());
    Loops loops = CopyLoops(k);
    const UOp part = k.Loop(parts);
    const UOp row = k.Add(k.Times(loops.row, parts), part);
    loops.shared.push_back(part);

    const auto position = [&](UOp key) { return k.Add(k.Times(key, parts), part); };
    const UOp key = k.Loop(keys);
    const UOp score = k.Copy(n_.scores.store.src(1), {{n_.scores.range.id(), position(key)}}, {});
    std::vector<UOp> kept{
        g.Make(Op::kBuffer, DType::kFloat32, {}, {ToWord(n_.scores.buffer().space()), 0, keys})};
    kept.insert(kept.end(), loops.shared.begin(), loops.shared.end());
    const UOp memory = g.Make(Op::kAfter, DType::kVoid, kept);
    const UOp nest = End(k, Store(k, memory, key, score), {&key, 1});
    const UOp filled = g.Make(Op::kAfter, {memory, nest});
    // A value of the weights' nest or of the weighted sum, at another key.
    const auto at = [&](UOp value, UOp range, UOp to, PartWriter::Replaced with) {
      with[range.id()] = position(to);
      for (const UOp u : NodesOf(value)) {
        if (n_.scores.Stores(u, range)) with[u.id()] = k.Load(filled, to);
      }
      return k.Copy(value, with, {});
    };
    UOp to = k.Reduced(keys);
    const UOp most =
        Reduce(k, ReduceKind::kMax, at(n_.maximum.src(0), n_.maximum.src(1), to, {}), to);
    // A part without a score adds up zeros.
    UOp shift = k.Copy(n_.difference.src(1), {{n_.maximum.id(), most}}, {});
    if (n_.difference.src(1) == n_.maximum) {
      shift = g.Make(Op::kWhere, {g.Make(Op::kCmpEq, {most, Lowest(k)}),
                                  g.ConstFloat(DType::kFloat32, 0), most});
    }
    const auto exponential = [&](UOp key) {
      return at(n_.exponential, n_.weights.range, key, {{n_.difference.src(1).id(), shift}});
    };
    to = k.Reduced(keys);
    const UOp sum = Reduce(k, ReduceKind::kAdd, exponential(to), to);
    to = k.Reduced(keys);
    const UOp channel = k.Copy(n_.channel, {}, {});
    const UOp weight = exponential(to);
    const UOp value = k.Copy(n_.value, {{n_.weighted.src(1).id(), position(to)}}, {});
    const UOp product = g.Make(Op::kMul, {weight, value});
    const UOp total = Reduce(k, ReduceKind::kAdd, product, to);
    k.Nest(End(k, nest, loops.shared));
    k.Nest(End(k, Store(k, maxima, row, most), loops.shared));
    k.Nest(End(k, Store(k, sums, row, sum), loops.shared));
    const UOp place = k.Add(k.Times(row, n_.channels()), channel);
    k.Nest(End(k, End(k, Store(k, weighted, place, total), {&channel, 1}), loops.shared));
    return k.Finish(StrCat("divides the keys of each row into ", parts, " parts"));
  }

  absl::StatusOr<KernelPart> Join(int64_t parts) const {
    PartWriter k(g_, NextRange());
    Graph& g = k.g();
    // Slots in the order of the kernel, the one that it stores to first.
    const UOp address = k.Copy(n_.root.src(0), {}, {});
    const int64_t numbers = parts * n_.rows;
    const UOp maxima = k.Param(kMaxima, numbers), sums = k.Param(kSums, numbers),
              weighted = k.Param(kWeighted, numbers * n_.channels());
    Loops loops = CopyLoops(k);
    const UOp first = k.Times(loops.row, parts);
    const UOp each = k.Reduced(parts);
    const UOp most = Reduce(k, ReduceKind::kMax, k.Load(maxima, k.Add(first, each)), each);
    const auto shift = [&](UOp maximum) {
      return k.Copy(n_.difference.src(1), {{n_.maximum.id(), maximum}}, {});
    };
    // exp2((g(m[i]) - g(m)) c) x[i], of a part without a score x[i]: zeros, or no number.
    const auto scaled = [&](UOp own, UOp x) {
      const UOp none = g.Make(Op::kCmpEq, {own, Lowest(k)});
      const UOp before = g.Make(Op::kWhere, {none, shift(most), shift(own)});
      const UOp by = k.Copy(n_.exponential,
                            {{n_.difference.src(0).id(), before}, {n_.maximum.id(), most}}, {});
      return g.Make(Op::kMul, {x, by});
    };
    const auto total = [&](UOp memory, int64_t times, UOp plus) {
      const UOp part = k.Reduced(parts), number = k.Add(first, part);
      UOp at = k.Times(number, times);
      if (plus.valid()) at = k.Add(at, plus);
      const UOp x = scaled(k.Load(maxima, number), k.Load(memory, at));
      return Reduce(k, ReduceKind::kAdd, x, part);
    };
    const UOp channel = k.Copy(n_.channel, {}, {});
    PartWriter::Replaced with{{n_.maximum.id(), most}};
    if (n_.sum.valid()) with[n_.sum.id()] = total(sums, 1, {});
    with[n_.exponential.id()] = total(weighted, n_.channels(), channel);
    const UOp result = k.Copy(n_.weights.store.src(1), with, {});
    loops.shared.push_back(channel);
    k.Store(address, k.Copy(n_.root.src(1), {{n_.weighted.id(), result}}, {}), loops.shared);
    return k.Finish("joins the parts of rows");
  }

  int64_t NextRange() const {
    int64_t next = 0;
    for (const uint32_t id : PostOrder(sink_)) {
      if (g_.op(id) == Op::kRange) next = std::max(next, g_.at(id).range_id() + 1);
    }
    return next;
  }

  const UOp sink_;
  const Graph& g_;
  const RowNests& n_;
  const Target& target_;
};

}  // namespace

absl::StatusOr<std::optional<KernelParts>> SplitRows(const FrozenGraph& kernel,
                                                     const ScheduleOptions& options,
                                                     Budget* budget) {
  if (options.row_bytes == 0 || !options.product_target || options.fixed_sums) return std::nullopt;
  const std::optional<RowNests> nests = FindRowNests(kernel);
  if (!nests) return std::nullopt;
  const RowSplitter splitter(kernel, *nests, *options.product_target);
  const int64_t parts = splitter.Parts();
  if (parts == 1) return std::nullopt;
  TG_RETURN_IF_ERROR(budget->SpendKernels(1));
  return splitter.Split(parts);
}

}  // namespace telegrad
