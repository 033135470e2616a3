#include "engine/lowering/order_sums.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/base/status.h"
#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr int64_t kPartialBytes = 64;

class SumOrderer {
 public:
  SumOrderer(Rewriter& b, UOp sink, Dependence d)
      : b_(b), g_(*b.graph()), sink_(sink), d_(std::move(d)) {}

  UOp Run() {
    for (const UOp range : d_.ranges) next_ = std::max(next_, range.range_id() + 1);
    return Rebuild(g_, sink_, [&](UOp u, std::vector<UOp>* src) {
      return Splits(u) ? Split(u, *src) : WithSources(g_, u, *src);
    });
  }

 private:
  struct Parts {
    UOp partial, term, rest;  // ranges; invalid where they have one iteration, or none
    int64_t whole = 0;        // terms that are in partial sums
  };

  // Two values are multiplied that both change from term to term.
  bool IsProduct(UOp reduce) const {
    const UOp body = reduce.src(0);
    if (!body.is(Op::kMul) || body.src(0) == body.src(1)) return false;
    const auto changes = [&](UOp factor) {
      for (int i = 1; i < reduce.num_src(); ++i) {
        if (d_.Depends(factor, reduce.src(i))) return true;
      }
      return false;
    };
    return changes(body.src(0)) && changes(body.src(1));
  }

  bool Splits(UOp u) const {
    if (!IsOrderedSum(u) || u.num_src() < 2 || IsProduct(u)) return false;
    const UOp last = u.src(u.num_src() - 1);
    if (!last.src(0).is_const()) return false;
    // In blocks of a row that a mask ends, each block is a multiple of the partial sums.
    bool blocks = false;
    for (int i = 1; i < u.num_src(); ++i) blocks |= !u.src(i).src(0).is_const();
    return SizeOf(last) >= (blocks ? 1 : 2) * PartialSums(u.dtype());
  }

  // REDUCEs of one range stay loops that they can share.
  const Parts& PartsOf(UOp range, int64_t partial) {
    const auto [it, added] = parts_.try_emplace(std::pair(range.id(), partial));
    Parts& parts = it->second;
    if (!added) return parts;
    const int64_t size = SizeOf(range), terms = size / partial, rest = size % partial;
    const auto type = range.axis_type();
    parts.whole = terms * partial;
    parts.partial = g_.Range(next_++, type, g_.Index(partial));
    if (terms > 1) parts.term = g_.Range(next_++, type, g_.Index(terms));
    if (rest > 1) parts.rest = g_.Range(next_++, type, g_.Index(rest));
    return parts;
  }

  // A REDUCE of `body` where `range` is `value`, over `ranges` and `last`.
  UOp Fold(UOp reduce, UOp body, UOp value, std::vector<UOp> ranges, UOp last) {
    std::vector<UOp> src{
        Substitute(b_, body, {{reduce.src(reduce.num_src() - 1).id(), {value, {}}}})};
    if (last.valid()) ranges.push_back(last);
    if (!src[0].valid() || ranges.empty()) return src[0];
    src.insert(src.end(), ranges.begin(), ranges.end());
    return g_.Make(Op::kReduce, DType::kVoid, src,
                   std::vector<int64_t>{ToWord(reduce.reduce_kind())});
  }

  // `src` are the sources of the REDUCE as they have become.
  UOp Split(UOp reduce, const std::vector<UOp>& src) {
    const UOp range = src.back();
    const int64_t partial = PartialSums(reduce.dtype()), size = SizeOf(range);
    const Parts parts = PartsOf(range, partial);
    const std::vector<UOp> others(src.begin() + 1, src.end() - 1);
    UOp at = parts.partial;
    if (parts.term.valid()) {
      at = b_.Make(Op::kAdd, {b_.Make(Op::kMul, {parts.term, g_.Index(partial)}), at});
    }
    const UOp sum = Fold(reduce, src[0], at, others, parts.term);
    if (!sum.valid()) return sum;
    const UOp all =
        g_.Make(Op::kReduce, DType::kVoid, {sum, parts.partial}, {ToWord(reduce.reduce_kind())});
    if (parts.whole == size) return all;
    UOp behind = g_.Index(parts.whole);
    if (parts.rest.valid()) behind = b_.Make(Op::kAdd, {parts.rest, behind});
    const UOp rest = Fold(reduce, src[0], behind, others, parts.rest);
    if (!rest.valid()) return rest;
    const bool adds = reduce.reduce_kind() == ReduceKind::kAdd;
    return b_.Make(adds ? Op::kAdd : Op::kMul, {all, rest});
  }

  Rewriter& b_;
  Graph& g_;
  const UOp sink_;
  const Dependence d_;
  absl::flat_hash_map<std::pair<uint32_t, int64_t>, Parts> parts_;
  int64_t next_ = 0;  // range
};

}  // namespace

bool KeepsOrder(const Target& target) { return target.deterministic; }

bool IsOrderedSum(UOp reduce) {
  return reduce.is(Op::kReduce) && RoundsInOrder(reduce.reduce_kind(), reduce.dtype());
}

int64_t PartialSums(DType dtype) {
  return kPartialBytes / std::max<int64_t>(ByteSize(dtype), ByteSize(DType::kFloat32));
}

UOp OrderSums(Rewriter& b, UOp sink) {
  std::optional<Dependence> d = FindDependence(sink);
  if (!d) {
    return b.graph()->Fail(ResourceExhausted("lowering: more than ", kMaxRanges, " ranges"));
  }
  return SumOrderer(b, sink, *std::move(d)).Run();
}

}  // namespace telegrad
