#include "engine/lowering/derive.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "engine/lowering/affine.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

constexpr double kMostGrowth = 8;  // elements, for each of the weight

class Deriver {
 public:
  Deriver(Rewriter& b, Piece* piece, Dependence d)
      : b_(b), g_(*b.graph()), piece_(*piece), d_(std::move(d)) {}

  UOp Run() {
    Replacements with;
    const std::vector<uint32_t> order = PostOrder(piece_.root);
    products_ = std::ranges::any_of(order, [&](uint32_t id) {
      return g_.op(id) == Op::kReduce && IsProduct(g_.at(id).src(0));
    });
    for (const uint32_t id : order) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kReduce)) continue;
      if (const UOp weight = SummedWeight(u); weight.valid() && PaysOff(u, weight)) {
        const UOp derived = Derive(u, u, weight);
        if (!derived.valid()) return {};
        with[id] = {derived, {}};
        continue;
      }
      if (!IsProduct(u.src(0))) continue;
      const UOp product = u.src(0);
      for (int i = 0; i < 2; ++i) {
        const UOp operand = product.src(i);
        if (with.contains(operand.id())) continue;
        const UOp weight = WeightOf(operand, 2);
        if (!weight.valid() || !PaysOff(operand, weight)) continue;
        const UOp derived = Derive(u, operand, weight);
        if (!derived.valid()) return {};
        with[operand.id()] = {derived, {}};
      }
    }
    return with.empty() ? piece_.root : Substitute(b_, piece_.root, with);
  }

 private:
  static bool IsProduct(UOp u) { return u.is(Op::kMul) || u.is(Op::kDot4); }

  double Iterations(RangeSet set) const {
    double n = 1;
    for (; set != 0; set &= set - 1) {
      n *= static_cast<double>(SizeOf(d_.ranges[static_cast<size_t>(std::countr_zero(set))]));
    }
    return n;
  }

  // The weight whose integers the REDUCE adds up, beside a product: what a zero point of the other
  // factor is multiplied by. Sums of floats keep the order that the kernel gives them.
  UOp SummedWeight(UOp reduce) const {
    const bool adds = reduce.reduce_kind() == ReduceKind::kAdd;
    return adds && products_ && IsInt(reduce.dtype()) ? WeightOf(reduce.src(0), 1) : UOp();
  }

  // The PARAM of which `operand` loads at least so many elements, where these and its ranges are
  // all that it depends on.
  UOp WeightOf(UOp operand, int least) const {
    UOp weight;
    int loads = 0;
    for (const uint32_t id : PostOrder(operand)) {
      const UOp u = g_.at(id);
      if (u.is(Op::kLoad)) {
        const UOp address = u.src(0), memory = address.src(0);
        if (address.num_src() != 2 || !memory.is(Op::kParam)) return {};
        if (weight.valid() && weight != memory) return {};
        weight = memory;
        ++loads;
      } else if (u.is(Op::kReduce) || u.is(Op::kAfter) || u.is(Op::kVar)) {
        return {};
      }
    }
    if (loads < least) return {};
    const auto slot = static_cast<size_t>(weight.slot());
    return slot < piece_.arguments.size() && piece_.arguments[slot].weight ? weight : UOp();
  }

  bool PaysOff(UOp operand, UOp weight) const {
    const RangeSet own = d_.of[operand.id()];
    for (RangeSet set = own; set != 0; set &= set - 1) {
      if (!d_.ranges[static_cast<size_t>(std::countr_zero(set))].src(0).is_const()) return false;
    }
    return Iterations(own) <= kMostGrowth * static_cast<double>(NumElements(weight.shape()));
  }

  // What the other operand depends on as well comes first, then what is reduced, then what stays:
  // that is what lanes are made of.
  std::vector<UOp> InOrder(UOp reduce, UOp operand) const {
    std::vector<UOp> ranges;
    for (RangeSet set = d_.of[operand.id()]; set != 0; set &= set - 1) {
      ranges.push_back(d_.ranges[static_cast<size_t>(std::countr_zero(set))]);
    }
    if (operand == reduce) return ranges;
    const UOp product = reduce.src(0);
    const UOp other = product.src(product.src(0) == operand ? 1 : 0);
    std::ranges::stable_sort(ranges, {}, [&](UOp range) {
      for (int i = 1; i < reduce.num_src(); ++i) {
        if (reduce.src(i) == range) return 1;
      }
      return d_.Depends(other, range) ? 0 : 2;
    });
    return ranges;
  }

  UOp Derive(UOp reduce, UOp operand, UOp weight) {
    Replacements fresh;
    if (operand == reduce) {  // in ranges beyond those of its results
      int64_t next = std::popcount(d_.of[operand.id()]);
      for (int i = 1; i < reduce.num_src(); ++i) {
        const UOp copy = g_.Range(next++, AxisType::kReduce, reduce.src(i).src(0));
        fresh[reduce.src(i).id()] = {copy, {copy}};
      }
    }
    std::vector<UOp> end{UOp()};
    UOp at = g_.Index(0), at_fresh = g_.Index(0);
    for (const UOp range : InOrder(reduce, operand)) {
      const UOp size = g_.Index(SizeOf(range));
      const UOp copy = g_.Range(static_cast<int64_t>(end.size()) - 1, AxisType::kLoop, size);
      fresh[range.id()] = {copy, {copy}};
      end.push_back(copy);
      at = b_.Make(Op::kAdd, {b_.Make(Op::kMul, {at, size}), range});
      at_fresh = b_.Make(Op::kAdd, {b_.Make(Op::kMul, {at_fresh, size}), copy});
    }
    fresh[weight.id()] = {g_.Param(1, weight.dtype(), weight.shape()), {}};
    const DType dtype = operand.dtype();
    const auto elements = static_cast<int64_t>(Iterations(d_.of[operand.id()]));
    const UOp to = g_.Make(Op::kIndex, {g_.Param(0, dtype, Shape{elements}), at_fresh});
    end[0] = g_.Make(Op::kStore, {to, Substitute(b_, operand, fresh)});
    const UOp sink = g_.Make(Op::kSink, {g_.Make(Op::kEnd, DType::kVoid, end)});
    if (!sink.valid()) return sink;
    const auto slot = static_cast<int32_t>(piece_.arguments.size());
    piece_.packings.push_back({slot, static_cast<int32_t>(weight.slot()), Freeze(sink)});
    piece_.arguments.push_back({.dtype = dtype, .elements = elements, .weight = true});
    return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {g_.Param(slot, dtype, Shape{elements}), at})});
  }

  Rewriter& b_;
  Graph& g_;
  Piece& piece_;
  const Dependence d_;
  bool products_ = false;  // whether the kernel adds up some
};

}  // namespace

absl::StatusOr<UOp> DeriveWeights(Rewriter& b, Piece* piece) {
  const auto is_weight = [](const Program::Argument& a) { return a.weight; };
  if (std::ranges::none_of(piece->arguments, is_weight)) return piece->root;
  std::optional<Dependence> d = FindDependence(piece->root);
  if (!d) return piece->root;
  const UOp derived = Deriver(b, piece, *std::move(d)).Run();
  if (!derived.valid()) return b.graph()->status();
  return derived;
}

}  // namespace telegrad
