#include "engine/schedule/store_shape.h"

#include <algorithm>
#include <array>

#include "engine/rewrite/copier.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/view_index.h"

namespace telegrad {
namespace {

// The sum of products that a stored value is, but for RESHAPEs and CASTs; invalid if it is none.
UOp StoredSum(UOp store) {
  UOp u = store.src(1);
  while (u.is(Op::kReshape) || u.is(Op::kCast) || u.is(Op::kDetach)) u = u.src(0);
  return u.is(Op::kReduce) && IsContraction(u) ? u : UOp();
}

// Whether both have the same axes but for those of size 1.
bool SameAxes(ShapeView a, ShapeView b) {
  const auto longer = [](ShapeView shape) {
    std::vector<int64_t> dims;
    std::ranges::copy_if(shape, std::back_inserter(dims), [](int64_t n) { return n != 1; });
    return dims;
  };
  return a.size() != b.size() && longer(a) == longer(b);
}

// Whether one factor is an exponential, perhaps times or by something: a softmax's weights.
bool IsWeighted(UOp sum) {
  for (int i = 0; i < sum.src(0).num_src(); ++i) {
    UOp u = sum.src(0).src(i);
    while (Is(u.op(), kMovement) || u.is(Op::kDetach) || u.is(Op::kFDiv) || u.is(Op::kMul)) {
      const bool second = u.is(Op::kMul) && !Is(u.src(0).op(), kMovement) && u.src(1).is(Op::kExp2);
      u = u.src(second ? 1 : 0);
    }
    if (u.is(Op::kExp2)) return true;
  }
  return false;
}

// Whether each axis of `joined`, but those of size 1, is one or several of `apart`, and some are
// several.
bool Joins(ShapeView apart, ShapeView joined) {
  size_t i = 0;
  bool several = false;
  for (int64_t n : joined) {
    int64_t product = 1;
    int axes = 0;
    while (product < n && i < apart.size()) {
      axes += apart[i] == 1 ? 0 : 1;
      product *= apart[i++];
    }
    if (product != n) return false;
    several |= axes > 1;
  }
  return several;
}

}  // namespace

absl::StatusOr<FrozenGraph> StoreInOwnShape(FrozenGraph graph, bool only_weighted, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(order.size())));
  std::vector<int> uses(from.size(), 0);
  for (const uint32_t id : order) {
    for (const uint32_t s : from.src(id)) ++uses[s];
  }
  const auto joins = [&](uint32_t id) {
    const UOp u = from.at(id);
    if (!u.is(Op::kStore) || NumElements(u.src(0).shape()) == 0) return false;
    const UOp sum = StoredSum(u);
    if (!sum.valid() || (only_weighted && !IsWeighted(sum))) return false;
    const bool read =
        !only_weighted && uses[sum.id()] > 1 && SameAxes(sum.shape(), u.src(0).shape());
    return read || Joins(sum.shape(), u.src(0).shape());
  };
  if (std::ranges::none_of(order, joins)) return graph;
  Copier copier(graph);
  return copier.Run(budget, [&](UOp u) {
    if (!joins(u.id())) return copier.Same(u);
    const UOp sum = StoredSum(u);
    std::vector<DType> casts;
    for (UOp v = u.src(1); v != sum; v = v.src(0)) {
      if (v.is(Op::kCast)) casts.push_back(v.dtype());
    }
    Graph* const out = copier.out();
    UOp value = copier.Made(sum);
    for (size_t i = casts.size(); i-- > 0;) value = out->Make(Op::kCast, casts[i], {value});
    const UOp to = Reshaped(*out, copier.Made(u.src(0)), {sum.shape().begin(), sum.shape().end()});
    return MakeLike(out, u, std::array{to, value});
  });
}

}  // namespace telegrad
