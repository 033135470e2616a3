// The terms of a sum are taken apart into factors beneath products, quotients and views, each with
// the ranges that its axes are. Of two sums, ranges are the same where equal factors have them at
// the same axes.
#include "engine/schedule/exchange_sums.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/ir/scalar.h"
#include "engine/rewrite/copier.h"
#include "engine/schedule/access.h"
#include "engine/schedule/cost.h"
#include "engine/schedule/drafts.h"

namespace telegrad {
namespace {

constexpr size_t kMaxFactors = 16;
constexpr size_t kMaxFactorNodes = 64;

struct Factor {
  UOp value;
  std::vector<int> axes;  // of the value: the range, or -1 where the axis has one element
  bool divides = false;
  RangeSet ranges = 0;
};

struct FactorList {
  std::vector<Factor> factors;
  bool negative = false;
};

// Nullopt where a view is more than a permutation of ranges that repeats elements.
std::optional<std::vector<int>> AxesOf(UOp u, const Access& access) {
  std::vector<int> axes;
  RangeSet seen = 0;
  if (access.gate != 0 || access.axes.size() != u.shape().size()) return std::nullopt;
  for (const AxisUse& axis : access.axes) {
    if (std::popcount(axis.ranges) > 1 || (axis.ranges & seen) != 0) return std::nullopt;
    seen |= axis.ranges;
    axes.push_back(axis.ranges == 0 ? -1 : std::countr_zero(axis.ranges));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 && u.shape()[i] != 1) return std::nullopt;
  }
  return axes;
}

// A view beneath which each axis is a range, too.
bool IsPlainView(UOp u, const Access& access) {
  if (!Is(u.op(), kMovement) || u.is(Op::kPad) || u.is(Op::kShrink) || u.is(Op::kFlip)) {
    return false;
  }
  return AxesOf(u.src(0), AccessSource(u, access)).has_value();
}

std::optional<FactorList> FactorsOf(UOp root, const Access& at) {
  struct Frame {
    UOp value;
    Access access;
    bool divides;
  };
  FactorList product;
  std::vector<Frame> stack{{root, at, false}};
  for (size_t steps = 0; !stack.empty(); ++steps) {
    if (steps > kMaxFactorNodes || product.factors.size() > kMaxFactors) return std::nullopt;
    const auto [u, access, divides] = std::move(stack.back());
    stack.pop_back();
    const auto source = [&](int i) { return u.src(i).shape().empty() ? Access{} : access; };
    if (u.is(Op::kDetach)) {
      stack.push_back({u.src(0), access, divides});
    } else if (u.is(Op::kNeg)) {
      product.negative = !product.negative;
      stack.push_back({u.src(0), access, divides});
    } else if (IsPlainView(u, access)) {
      stack.push_back({u.src(0), AccessSource(u, access), divides});
    } else if (u.is(Op::kMul)) {
      stack.push_back({u.src(0), source(0), divides});
      stack.push_back({u.src(1), source(1), divides});
    } else if (u.is(Op::kFDiv)) {
      stack.push_back({u.src(0), source(0), divides});
      stack.push_back({u.src(1), source(1), !divides});
    } else {
      std::optional<std::vector<int>> axes = AxesOf(u, access);
      if (!axes) return std::nullopt;
      product.factors.push_back({u, *std::move(axes), divides, access.ranges()});
    }
  }
  return product;
}

// The axes of what a REDUCE reduces: their ranges, and the reduced ones.
struct Ranges {
  explicit Ranges(UOp reduce) : access(LoopAccess(reduce.src(0).shape())) {
    for (const int64_t axis : reduce.reduced_axes()) {
      reduced |= access.axes[static_cast<size_t>(axis)].ranges;
    }
  }
  Access access;
  RangeSet reduced = 0;
};

bool IsFloatSum(UOp u) {
  return u.is(Op::kReduce) && u.reduce_kind() == ReduceKind::kAdd && IsFloat(u.dtype());
}

UOp BeneathViews(UOp u) {
  while (u.is(Op::kReshape) || u.is(Op::kExpand) || u.is(Op::kDetach)) u = u.src(0);
  return u;
}

// The sum of a row's exponentials less their maximum. That of the maximum is 1, so the sum is from
// 1 to the length of the row, or no number, as all of the row's weights then are.
bool IsSumOfWeights(UOp u) {
  if (!IsFloatSum(u) || !u.src(0).is(Op::kExp2)) return false;
  UOp difference = u.src(0).src(0);
  for (int i = 0; i < 2 && difference.is(Op::kMul); ++i) {
    const UOp scale = BeneathViews(difference.src(i));
    const bool positive = scale.is_const() && ScalarAsDouble(scale.dtype(), scale.const_word()) > 0;
    if (positive) difference = difference.src(1 - i);
  }
  if (!difference.is(Op::kSub)) return false;
  // A view may show the maximum of another row.
  const Access row = LoopAccess(u.src(0).shape());
  Access access = row;
  UOp maximum = difference.src(1);
  for (; maximum.is(Op::kDetach) || IsPlainView(maximum, access); maximum = maximum.src(0)) {
    if (!maximum.is(Op::kDetach)) access = AccessSource(maximum, access);
  }
  const bool same = maximum.is(Op::kReduce) && maximum.reduce_kind() == ReduceKind::kMax &&
                    maximum.src(0) == difference.src(0) &&
                    std::ranges::equal(maximum.reduced_axes(), u.reduced_axes());
  if (!same) return false;
  for (size_t i = 0; i < row.axes.size(); ++i) {
    if (maximum.shape()[i] != 1 && access.axes[i].ranges != row.axes[i].ranges) return false;
  }
  return true;
}

// A number by which a sum is divided without more than a rounding.
bool IsInvertible(UOp u) {
  if (IsSumOfWeights(BeneathViews(u.is(Op::kRecip) ? u.src(0) : u))) return true;
  if (!u.is_const()) return false;
  const double x = ScalarAsDouble(u.dtype(), u.const_word());
  return std::abs(x) > 0x1p-30 && std::abs(x) < 0x1p30;
}

// A sum over j, of which one factor is a sum over d of two factors.
struct NestedSum {
  FactorList outer;  // without the inner sum
  RangeSet reduced;  // ranges j
  int next = 0;      // ranges from here on are of d
  Factor g, v;       // of the inner sum: v depends on j, g does not
};

std::optional<NestedSum> NestedSumOf(UOp u) {
  if (!IsFloatSum(u)) return std::nullopt;
  const Ranges ranges(u);
  std::optional<FactorList> product = FactorsOf(u.src(0), ranges.access);
  if (!product) return std::nullopt;
  const auto inner = std::ranges::find_if(product->factors, [](const Factor& f) {
    return !f.divides && IsFloatSum(f.value) && IsContraction(f.value);
  });
  if (inner == product->factors.end()) return std::nullopt;
  NestedSum sum{.outer = {}, .reduced = ranges.reduced, .g = {}, .v = {}};
  sum.next = std::bit_width(ranges.access.ranges());
  const UOp f = inner->value;
  Access access;
  int next = sum.next;
  const std::span<const int64_t> axes = f.reduced_axes();
  for (size_t i = 0; i < f.shape().size(); ++i) {
    const int range = inner->axes[i];
    AxisUse use;
    if (std::ranges::find(axes, static_cast<int64_t>(i)) != axes.end()) {
      if (f.src(0).shape()[i] != 1) use = {~static_cast<uint64_t>(next), RangeSet{1} << next++};
    } else if (range >= 0) {
      use = {static_cast<uint64_t>(range) + 1, RangeSet{1} << range};
    }
    access.axes.push_back(use);
  }
  const std::optional<FactorList> terms = FactorsOf(f.src(0), access);
  if (!terms || terms->negative || terms->factors.size() != 2) return std::nullopt;
  for (const Factor& factor : terms->factors) {
    if (factor.divides) return std::nullopt;
    ((factor.ranges & ranges.reduced) != 0 ? sum.v : sum.g) = factor;
  }
  if (!sum.v.value.valid() || !sum.g.value.valid()) return std::nullopt;
  product->factors.erase(inner);
  sum.outer = *std::move(product);
  return sum;
}

// Ranges of one sum as those of another.
class RangeMap {
 public:
  // Whether the axes of a factor can be the same ranges in both.
  bool Unify(const Factor& from, const Factor& to) {
    if (from.value != to.value || from.divides != to.divides) return false;
    for (size_t i = 0; i < from.axes.size(); ++i) {
      if ((from.axes[i] < 0) != (to.axes[i] < 0)) return false;
      if (from.axes[i] < 0) continue;
      const auto [it, added] = of_.try_emplace(from.axes[i], to.axes[i]);
      if (!added && it->second != to.axes[i]) return false;
      if (added && !taken_.emplace(to.axes[i], from.axes[i]).second) return false;
    }
    return true;
  }
  int of(int range) const {
    const auto it = of_.find(range);
    return it == of_.end() ? -1 : it->second;
  }

 private:
  absl::flat_hash_map<int, int> of_, taken_;
};

struct Exchange {
  NestedSum sum;
  UOp known;                         // y, a REDUCE
  std::vector<int> known_axes = {};  // its ranges in the nested sum
  std::vector<Factor> over = {};  // of the nested sum: what y does not have; and inverted, the rest
};

class Exchanger {
 public:
  void Note(UOp u) {
    if (IsFloatSum(u) && IsContraction(u)) known_.push_back(u);
  }

  std::optional<Exchange> Find(UOp u, Budget* budget) const {
    std::optional<NestedSum> sum = NestedSumOf(u);
    if (!sum) return std::nullopt;
    for (const UOp y : known_) {
      if (!budget->SpendSteps(kMaxFactorNodes).ok()) return std::nullopt;
      if (NumElements(y.shape()) >= NumElements(u.src(0).shape()) || y.dtype() != u.dtype()) {
        continue;
      }
      if (std::optional<Exchange> found = Match(*sum, y)) return found;
    }
    return std::nullopt;
  }

 private:
  static std::optional<Exchange> Match(const NestedSum& sum, UOp y) {
    const Ranges ranges(y);
    std::optional<FactorList> product = FactorsOf(y.src(0), ranges.access);
    if (!product) return std::nullopt;
    RangeMap map;
    std::vector<Factor> left = sum.outer.factors;
    // First the factors with the ranges of the sum, which say how all ranges correspond.
    std::vector<Factor> rest;
    bool has_value = false;
    for (const Factor& factor : product->factors) {
      if ((factor.ranges & ranges.reduced) == 0) {
        rest.push_back(factor);
        continue;
      }
      const auto same = std::ranges::find_if(left, [&](const Factor& f) {
        return (f.ranges & sum.reduced) != 0 && f.value == factor.value &&
               f.divides == factor.divides;
      });
      if (same != left.end() && map.Unify(factor, *same)) {
        left.erase(same);
      } else if (has_value || !map.Unify(factor, sum.v)) {
        return std::nullopt;
      } else {
        has_value = true;
      }
    }
    if (!has_value) return std::nullopt;
    const bool more =
        std::ranges::any_of(left, [&](const Factor& f) { return (f.ranges & sum.reduced) != 0; });
    if (more) return std::nullopt;
    for (const Factor& factor : rest) {
      const auto same = std::ranges::find_if(left, [&](const Factor& f) {
        RangeMap copy = map;
        return copy.Unify(factor, f);
      });
      if (same != left.end()) {
        left.erase(same);
        continue;
      }
      // The inverse of what a run may make 0 would lose the sum.
      if (!IsInvertible(factor.value)) return std::nullopt;
      Factor inverse = factor;
      inverse.divides = !inverse.divides;
      inverse.ranges = 0;
      for (int& range : inverse.axes) {
        if (range < 0) continue;
        range = map.of(range);
        if (range < 0) return std::nullopt;
        inverse.ranges |= RangeSet{1} << range;
      }
      left.push_back(std::move(inverse));
    }
    Exchange out{.sum = sum, .known = y};
    out.sum.outer.negative = sum.outer.negative != product->negative;
    // The same ranges are reduced, and all of d is left.
    RangeSet reduced = 0, kept = 0;
    for (const AxisUse& axis : ranges.access.axes) {
      const int to = axis.ranges == 0 ? -1 : map.of(std::countr_zero(axis.ranges));
      if (axis.ranges != 0 && to < 0) return std::nullopt;
      const bool is_reduced = (axis.ranges & ranges.reduced) != 0;
      if (to >= 0) (is_reduced ? reduced : kept) |= RangeSet{1} << to;
      out.known_axes.push_back(is_reduced ? -1 : to);
    }
    const RangeSet of_d = (sum.g.ranges | sum.v.ranges) >> sum.next << sum.next;
    if (reduced != sum.reduced || (of_d & ~kept) != 0) return std::nullopt;
    if ((sum.g.ranges & ~kept) != 0) return std::nullopt;
    for (const Factor& factor : left) {
      if ((factor.ranges & (of_d | sum.reduced)) != 0) return std::nullopt;
    }
    out.over = std::move(left);
    return out;
  }

  std::vector<UOp> known_;
};

// `x`, whose axes are `axes`, with an axis for each of `to`, of which `dims` are the sizes.
UOp ViewAs(Graph& g, UOp x, const std::vector<int>& axes, const std::vector<int>& to,
           const Shape& dims) {
  if (x.shape().empty() || NumElements(x.shape()) == 1) {
    if (x.shape().empty()) return x;
    const UOp one =
        g.Make(Op::kReshape, DType::kVoid, std::vector{x}, std::vector<int64_t>(dims.size(), 1));
    return g.Make(Op::kExpand, DType::kVoid, std::vector{one},
                  std::vector<int64_t>(dims.begin(), dims.end()));
  }
  std::vector<int64_t> order, apart(dims.size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0) order.push_back(static_cast<int64_t>(i));
  }
  for (size_t k = 0; k < to.size(); ++k) {
    const auto at = to[k] < 0 ? axes.end() : std::ranges::find(axes, to[k]);
    if (at == axes.end()) continue;
    order.push_back(at - axes.begin());
    apart[k] = dims[k];
  }
  UOp view = x;
  if (!std::ranges::is_sorted(order)) {
    view = g.Make(Op::kPermute, DType::kVoid, std::vector{view}, order);
  }
  const std::vector<int64_t> whole(dims.begin(), dims.end());
  if (!std::ranges::equal(view.shape(), apart)) {
    view = g.Make(Op::kReshape, DType::kVoid, std::vector{view}, apart);
  }
  return apart == whole ? view : g.Make(Op::kExpand, DType::kVoid, std::vector{view}, whole);
}

UOp Exchanged(Copier* copier, const Exchange& e, UOp reduce) {
  Graph& g = *copier->out();
  const UOp y = copier->Made(e.known);
  const Shape dims(y.shape().begin(), y.shape().end());
  const UOp factor = ViewAs(g, copier->Made(e.sum.g.value), e.sum.g.axes, e.known_axes, dims);
  std::vector<int64_t> arg{static_cast<int64_t>(ReduceKind::kAdd)};
  std::vector<int> axes = e.known_axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < e.sum.next) continue;
    arg.push_back(static_cast<int64_t>(i));
    axes[i] = -1;
  }
  const UOp sum =
      g.Make(Op::kReduce, DType::kVoid, std::vector{g.Make(Op::kMul, {factor, y})}, arg);
  // In the shape of the nested sum.
  const Access access = LoopAccess(reduce.src(0).shape());
  std::vector<int> to;
  for (const AxisUse& axis : access.axes) {
    const bool left = axis.ranges != 0 && (axis.ranges & e.sum.reduced) == 0;
    to.push_back(left ? std::countr_zero(axis.ranges) : -1);
  }
  const Shape shape(reduce.shape().begin(), reduce.shape().end());
  UOp value = ViewAs(g, sum, axes, to, shape);
  for (const Factor& f : e.over) {
    const UOp by = ViewAs(g, copier->Made(f.value), f.axes, to, shape);
    value = g.Make(f.divides ? Op::kFDiv : Op::kMul, {value, by});
  }
  return e.sum.outer.negative ? g.Make(Op::kNeg, {value}) : value;
}

}  // namespace

absl::StatusOr<FrozenGraph> ExchangeSums(FrozenGraph graph, Budget* budget) {
  const Graph& from = *graph.graph;
  Exchanger exchanger;
  absl::flat_hash_map<uint32_t, Exchange> exchanges;
  for (const uint32_t id : PostOrder(graph.root())) {
    TG_RETURN_IF_ERROR(budget->SpendSteps(1));
    const UOp u = from.at(id);
    if (!u.is(Op::kReduce)) continue;
    if (std::optional<Exchange> found = exchanger.Find(u, budget)) {
      exchanges.emplace(id, *std::move(found));
    }
    exchanger.Note(u);
  }
  if (exchanges.empty()) return graph;
  Copier copier(graph);
  return copier.Run(budget, [&](UOp u) {
    const auto it = exchanges.find(u.id());
    return it == exchanges.end() ? copier.Same(u) : Exchanged(&copier, it->second, u);
  });
}

}  // namespace telegrad
