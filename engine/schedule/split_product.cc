// The cost of the tiles (engine/ir/product_tile.h) decides into how many parts: each has its own
// copies and stores, and a second kernel adds them; in return more workgroups share the sum. A part
// is a whole number of steps along one of the reduced ranges, and begins where pieces of memory
// that its threads copy do.
#include "engine/schedule/split_product.h"

#include <algorithm>
#include <utility>

#include "engine/base/strings.h"
#include "engine/ir/product_tile.h"
#include "engine/schedule/range_facts.h"

namespace telegrad {
namespace {

constexpr int kPartial = ~0;  // the temporary

// The LOAD that a factor is, perhaps converted, or 0 where a gate forbids it.
UOp LoadOf(UOp factor) {
  if (factor.is(Op::kWhere) && factor.src(2).is_const() && factor.src(2).const_word() == 0) {
    factor = factor.src(1);
  }
  if (factor.is(Op::kCast)) factor = factor.src(0);
  return factor.is(Op::kLoad) ? factor : UOp();
}

// Whether positions alone say where it reads.
bool IsPlain(UOp load) {
  const Graph& g = *load.graph();
  const std::vector<uint32_t> below = PostOrder(load.src(0));
  return std::ranges::none_of(
      below, [&](uint32_t id) { return g.op(id) == Op::kLoad || g.op(id) == Op::kReduce; });
}

struct Division {
  UOp range;
  int64_t parts = 1;
};

class Splitter {
 public:
  Splitter(const FrozenGraph& kernel, const Target& target)
      : sink_(kernel.root()), g_(*kernel.graph), target_(target) {}

  // The loops, the one sum of products, and its sizes.
  bool Find() {
    if (!FindLoops() || !FindReduce()) return false;
    facts_ = RangeFacts::Of(sink_);
    if (!facts_) return false;
    const UOp product = reduce_.src(0);
    a_ = LoadOf(product.src(0));
    b_ = LoadOf(product.src(1));
    if (!a_.valid() || !b_.valid() || a_.dtype() != b_.dtype()) return false;
    if (!IsPlain(a_) || !IsPlain(b_)) return false;
    const NodeFacts &a = (*facts_)[a_], &b = (*facts_)[b_];
    sizes_ = {.m = 1, .n = 1, .k = 1, .batch = 1, .dtype = a_.dtype()};
    for (const UOp loop : loops_) {
      const int r = facts_->IndexOf(loop);
      if (a.has(r) == b.has(r)) {
        sizes_.batch *= static_cast<double>(RangeFacts::Size(loop));
      } else {
        (a.has(r) ? sizes_.m : sizes_.n) *= RangeFacts::Size(loop);
      }
      results_ *= RangeFacts::Size(loop);
    }
    for (int i = 1; i < reduce_.num_src(); ++i) {
      const int r = facts_->IndexOf(reduce_.src(i));
      if (!a.has(r) || !b.has(r)) return false;
      sizes_.k *= RangeFacts::Size(reduce_.src(i));
    }
    if (CopiesElements(a_) || CopiesElements(b_)) return false;
    return sizes_.m > 1 && sizes_.n > 1;
  }

  // Into as many parts as cost the least, each of several products, whose memory is at most so
  // large. One: as it is.
  Division Best(int64_t most_bytes) const {
    // More than hide each other's waiting gain nothing.
    const auto groups = static_cast<int64_t>(CostsOf(target_).group.busy * target_.threads);
    Division best;
    double least = CostOf(1);
    const int64_t room = most_bytes / ByteSize(DType::kFloat32) / results_;
    for (int i = 1; i < reduce_.num_src(); ++i) {
      const UOp range = reduce_.src(i);
      const int64_t size = RangeFacts::Size(range);
      const int64_t most = std::min({size, room, groups});
      for (int64_t parts = 2; parts <= most; ++parts) {
        if (size % parts != 0 || parts == sizes_.k || !IsAligned(range, size / parts)) continue;
        const double cost = CostOf(parts);
        if (cost >= least) continue;
        best = {range, parts};
        least = cost;
      }
    }
    return best;
  }

  absl::StatusOr<KernelParts> Split(const Division& division) const {
    KernelParts out{.kernels = {}, .temporaries = {division.parts * results_}};
    TG_ASSIGN_OR_RETURN(KernelPart parts, Parts(division));
    TG_ASSIGN_OR_RETURN(KernelPart sum, Sum(division.parts));
    out.kernels.push_back(std::move(parts));
    out.kernels.push_back(std::move(sum));
    return out;
  }

 private:
  // Stores in the same loops, around nothing else.
  bool FindLoops() {
    for (const uint32_t id : sink_.src_ids()) {
      const UOp end = g_.at(id);
      if (!end.is(Op::kEnd) || !end.src(0).is(Op::kStore)) return false;
      std::vector<UOp> loops;
      for (int i = 1; i < end.num_src(); ++i) loops.push_back(end.src(i));
      if (!loops_.empty() && loops != loops_) return false;
      loops_ = std::move(loops);
    }
    return !loops_.empty();
  }

  bool FindReduce() {
    for (const uint32_t id : PostOrder(sink_)) {
      const UOp u = g_.at(id);
      if (u.is(Op::kRange)) {
        next_range_ = std::max(next_range_, u.range_id() + 1);
        if (!u.src(0).is_const()) return false;
      }
      if (!u.is(Op::kReduce)) continue;
      if (reduce_.valid()) return false;
      reduce_ = u;
    }
    return reduce_.valid() && reduce_.dtype() == DType::kFloat32 &&
           reduce_.reduce_kind() == ReduceKind::kAdd && reduce_.src(0).is(Op::kMul);
  }

  // Whether parts of so many steps begin at whole vectors where the range is contiguous.
  bool IsAligned(UOp range, int64_t length) const {
    const int64_t lanes = target_.vector_bytes / ByteSize(sizes_.dtype);
    const auto r = static_cast<size_t>(facts_->IndexOf(range));
    const auto fits = [&](UOp load) {
      const NodeFacts& index = (*facts_)[load.src(0).src(1)];
      return !index.linear || index.stride[r] % lanes == 0 || length % lanes == 0;
    };
    return fits(a_) && fits(b_);
  }

  // Whether pieces of 16-bit floats that a gate may forbid are no neighbours along what is reduced:
  // the addresses and gates of single elements that are copied leave no registers for those of a
  // part.
  bool CopiesElements(UOp load) const {
    if (load.dtype() == DType::kFloat32 || load.src(0).num_src() != 3) return false;
    const NodeFacts& index = (*facts_)[load.src(0).src(1)];
    const int64_t lanes = target_.vector_bytes / ByteSize(load.dtype());
    for (int i = 1; i < reduce_.num_src(); ++i) {
      const auto r = static_cast<size_t>(facts_->IndexOf(reduce_.src(i)));
      const bool pieces = RangeFacts::Size(reduce_.src(i)) % lanes == 0;
      if (index.linear && index.stride[r] == 1 && pieces) return false;
    }
    return true;
  }

  double CostOf(int64_t parts) const {
    ProductSizes sizes = sizes_;
    sizes.k /= parts;
    sizes.batch *= static_cast<double>(parts);
    const std::optional<ProductTile> tile = PickTile(sizes, target_);
    if (!tile) return parts == 1 ? 0 : std::numeric_limits<double>::infinity();
    const double product = CostOfProduct(sizes, *tile, /*scattered=*/false, target_);
    return parts == 1 ? product
                      : product + CostOfParts(static_cast<double>(results_), parts, target_);
  }

  // `number` * results + the position in the loops, the last fastest.
  UOp Place(PartWriter& k, UOp number) const {
    for (const UOp loop : loops_) {
      number = k.Add(k.Times(number, RangeFacts::Size(loop)), k.Copy(loop, {}, {}));
    }
    return number;
  }

  std::vector<UOp> Loops(PartWriter& k) const {
    std::vector<UOp> loops;
    for (const UOp loop : loops_) loops.push_back(k.Copy(loop, {}, {}));
    return loops;
  }

  absl::StatusOr<KernelPart> Parts(const Division& division) const {
    PartWriter k(g_, next_range_);
    const UOp memory = k.Param(kPartial, division.parts * results_);
    const int64_t length = RangeFacts::Size(division.range) / division.parts;
    const UOp part = k.Loop(division.parts);
    std::vector<UOp> reduced;
    UOp place = k.Times(part, length);
    for (int i = 1; i < reduce_.num_src(); ++i) {
      const UOp range = reduce_.src(i);
      if (range != division.range) {
        reduced.push_back(k.Copy(range, {}, {}));
      } else if (length > 1) {
        reduced.push_back(k.Reduced(length));
        place = k.Add(place, reduced.back());
      }
    }
    const PartWriter::Replaced with{{division.range.id(), place}};
    const UOp sum = k.Sum(k.Copy(reduce_.src(0), with, {}), reduced);
    std::vector<UOp> loops = Loops(k);
    loops.insert(loops.begin(), part);
    k.Store(k.g().Make(Op::kIndex, {memory, Place(k, part)}), sum, loops);
    return k.Finish(StrCat("adds up products in ", division.parts, " parts"));
  }

  absl::StatusOr<KernelPart> Sum(int64_t parts) const {
    PartWriter k(g_, next_range_);
    // Slots in the order of the kernel, the one that it stores to first.
    for (const uint32_t id : sink_.src_ids()) k.Copy(g_.at(id).src(0).src(0).src(0), {}, {});
    const UOp memory = k.Param(kPartial, parts * results_);
    const UOp part = k.Reduced(parts);
    const UOp sum = k.Sum(k.Load(memory, Place(k, part)), std::array{part});
    const PartWriter::Replaced with{{reduce_.id(), sum}};
    for (const uint32_t id : sink_.src_ids()) {
      const UOp store = g_.at(id).src(0);
      k.Store(k.Copy(store.src(0), with, {}), k.Copy(store.src(1), with, {}), Loops(k));
    }
    return k.Finish("adds the parts of a product");
  }

  const UOp sink_;
  const Graph& g_;
  const Target& target_;
  std::vector<UOp> loops_;
  UOp reduce_, a_, b_;
  std::optional<RangeFacts> facts_;
  ProductSizes sizes_ = {};
  int64_t results_ = 1, next_range_ = 0;
};

}  // namespace

absl::StatusOr<std::optional<KernelParts>> SplitProduct(const FrozenGraph& kernel,
                                                        const ScheduleOptions& options,
                                                        Budget* budget) {
  if (!options.product_target || options.fixed_sums) return std::nullopt;
  Splitter splitter(kernel, *options.product_target);
  if (!splitter.Find()) return std::nullopt;
  const Division division = splitter.Best(options.transformed_bytes);
  if (division.parts == 1) return std::nullopt;
  TG_RETURN_IF_ERROR(budget->SpendKernels(1));
  return splitter.Split(division);
}

}  // namespace telegrad
