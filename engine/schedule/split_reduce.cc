// REDUCE(x) of n elements along an axis becomes REDUCE(CONTIGUOUS(REDUCE(x as [parts, n /
// parts]))), reduced with what n leaves over. CONTIGUOUS makes the parts a kernel of their own,
// with a loop over the parts that threads can share.
#include "engine/schedule/split_reduce.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engine/ir/scalar.h"
#include "engine/rewrite/copier.h"
#include "engine/schedule/fixed_sums.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// What takes a thread for many milliseconds is cut, for others want the device and the client may
// cancel: launches are cut between results only. Where there are many results, each part is a value
// to be kept.
constexpr int64_t kMostParts = 1 << 14;
// The parts of a float sum whose order is fixed decide how it rounds: no machine has others.
constexpr ReductionSplit kFixedSplit{
    .few_results = 0, .parts = 64, .elements = int64_t{1} << 17, .part_elements = int64_t{1} << 22};

// Whether its parts follow from its length alone.
bool IsFixed(UOp reduce, bool fixed) {
  return fixed && RoundsInOrder(reduce.reduce_kind(), reduce.dtype());
}

int64_t Extent(UOp reduce) {
  int64_t n = 1;
  for (int64_t axis : reduce.reduced_axes()) n *= reduce.src(0).shape()[axis];
  return n;
}

// `sums_products`: see SumsProducts; false where the order is not fixed.
bool ShouldSplit(UOp u, const ReductionSplit& split, bool fixed, bool sums_products) {
  if (!u.is(Op::kReduce) || u.src(0).shape().size() >= kMaxRank) return false;
  const int64_t results = NumElements(u.shape());
  if (results <= 0) return false;
  const int64_t extent = Extent(u);
  if (IsFixed(u, fixed)) {
    return extent >= (sums_products ? 8 * kFixedSplit.part_elements : kFixedSplit.elements);
  }
  return results < split.few_results ? extent * results >= split.elements
                                     : results <= kMostParts && extent >= 8 * split.part_elements;
}

// Into how many, of an axis of n.
int64_t PartsOf(UOp reduce, const ReductionSplit& split, bool fixed, bool sums_products,
                int64_t n) {
  if (IsFixed(reduce, fixed)) {
    const int64_t least = sums_products ? 1 : kFixedSplit.parts;
    return std::min(n, std::max(least, Extent(reduce) / kFixedSplit.part_elements));
  }
  const int64_t results = NumElements(reduce.shape());
  const int64_t for_threads = split.parts / results;
  const int64_t for_time = std::min(Extent(reduce) / split.part_elements, kMostParts * 8 / results);
  return std::min(n, std::max<int64_t>({for_threads, for_time, 1}));
}

UOp Combine(Graph* g, ReduceKind kind, UOp x, UOp y) {
  const Op op = kind == ReduceKind::kAdd   ? Op::kAdd
                : kind == ReduceKind::kMul ? Op::kMul
                                           : Op::kMax;
  return g->Make(op, {x, y});
}

// `reduce` with `x` for its source, in `g`.
UOp Split(Graph* g, UOp reduce, const ReductionSplit& split, bool fixed, bool sums_products,
          UOp x) {
  const std::span<const int64_t> axes = reduce.reduced_axes();
  const Shape shape(x.shape().begin(), x.shape().end());
  const int64_t axis = *std::ranges::max_element(axes, {}, [&](int64_t a) { return shape[a]; });
  const int64_t n = shape[axis];
  const int64_t parts = PartsOf(reduce, split, fixed, sums_products, n);
  const int64_t length = n / parts, rest = n % parts;
  const auto kind = reduce.reduce_kind();
  const auto range = [&](int64_t offset, int64_t size) {
    std::vector<int64_t> pairs;
    for (size_t i = 0; i < shape.size(); ++i) {
      const bool here = static_cast<int64_t>(i) == axis;
      pairs.push_back(here ? offset : 0);
      pairs.push_back(here ? size : shape[i]);
    }
    return g->Make(Op::kShrink, {x}, pairs);
  };
  Shape cut = shape;
  cut[axis] = parts;
  cut.insert(cut.begin() + axis + 1, length);
  const UOp whole = rest == 0 ? x : range(0, parts * length);
  std::vector<int64_t> inner{ToWord(reduce.reduce_kind())},
      outer{ToWord(reduce.reduce_kind()), axis};
  for (int64_t a : axes) inner.push_back(a >= axis ? a + 1 : a);
  UOp sum = g->Make(Op::kReduce, {g->Make(Op::kReshape, {whole}, cut)}, inner);
  sum = g->Make(Op::kReduce, {g->Make(Op::kContiguous, {sum})}, outer);
  sum = g->Make(Op::kReshape, {sum}, Shape(reduce.shape().begin(), reduce.shape().end()));
  if (rest == 0) return sum;
  return Combine(g, kind, sum, MakeLike(g, reduce, std::array{range(parts * length, rest)}));
}

}  // namespace

absl::StatusOr<FrozenGraph> SplitReductions(FrozenGraph graph, const ReductionSplit& split,
                                            bool fixed, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(order.size())));
  std::optional<NodeMap<uint32_t>> beneath;
  if (fixed) beneath = BeneathViews(from, order);
  const auto sums_products = [&](UOp u) { return beneath && SumsProducts(u, *beneath); };
  const auto splits = [&](UOp u) { return ShouldSplit(u, split, fixed, sums_products(u)); };
  if (std::ranges::none_of(order, [&](uint32_t id) { return splits(from.at(id)); })) return graph;
  Copier copier(graph);
  return copier.Run(budget, [&](UOp u) {
    if (!splits(u)) return copier.Same(u);
    return Split(copier.out(), u, split, fixed, sums_products(u), copier.Made(u.src(0)));
  });
}

}  // namespace telegrad
