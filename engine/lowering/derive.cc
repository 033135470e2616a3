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
    for (const uint32_t id : PostOrder(piece_.root)) {
      const UOp u = g_.at(id);
      if (!u.is(Op::kReduce) || !u.src(0).is(Op::kMul)) continue;
      const UOp product = u.src(0);
      for (int i = 0; i < 2; ++i) {
        const UOp operand = product.src(i);
        if (with.contains(operand.id())) continue;
        const UOp weight = WeightOf(operand);
        if (!weight.valid() || !PaysOff(operand, weight)) continue;
        const UOp derived = Derive(u, operand, weight);
        if (!derived.valid()) return {};
        with[operand.id()] = {derived, {}};
      }
    }
    return with.empty() ? piece_.root : Substitute(b_, piece_.root, with);
  }

 private:
  double Iterations(RangeSet set) const {
    double n = 1;
    for (; set != 0; set &= set - 1) {
      n *= static_cast<double>(SizeOf(d_.ranges[static_cast<size_t>(std::countr_zero(set))]));
    }
    return n;
  }

  // The PARAM of which `operand` loads several elements, where these and its ranges are all that it
  // depends on.
  UOp WeightOf(UOp operand) const {
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
    if (loads < 2) return {};
    const auto slot = static_cast<size_t>(weight.arg(0));
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
    const UOp product = reduce.src(0);
    const UOp other = product.src(product.src(0) == operand ? 1 : 0);
    std::vector<UOp> ranges;
    for (RangeSet set = d_.of[operand.id()]; set != 0; set &= set - 1) {
      ranges.push_back(d_.ranges[static_cast<size_t>(std::countr_zero(set))]);
    }
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
    piece_.packings.push_back({slot, static_cast<int32_t>(weight.arg(0)), Freeze(sink)});
    piece_.arguments.push_back({.dtype = dtype, .elements = elements, .weight = true});
    return g_.Make(Op::kLoad, {g_.Make(Op::kIndex, {g_.Param(slot, dtype, Shape{elements}), at})});
  }

  Rewriter& b_;
  Graph& g_;
  Piece& piece_;
  const Dependence d_;
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
