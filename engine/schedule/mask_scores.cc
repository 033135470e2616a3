// A masked sum is looked at from its terms down to the scores. Each kind of node is 0 at a hidden
// element if one of its sources is, or, at the exponential, -inf: then the same node of the masked
// source takes its place. Views move the axis along which elements are hidden. A row whose maximum
// is no finite number has a term that is no number among those that are not hidden, so it does not
// matter that hidden ones are none either.
#include "engine/schedule/mask_scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "engine/ir/scalar.h"
#include "engine/rewrite/copier.h"
#include "engine/schedule/score_rows.h"
#include "engine/schedule/view_index.h"

namespace telegrad {
namespace {

constexpr int kMostNodes = 32;  // between a sum and the scores

// Elements from a number of the run on are hidden, along one axis.
struct HiddenPart {
  UOp shown;           // i64 [elements] < number: whether there is the element
  int64_t before = 1;  // elements of all axes before that one

  int64_t elements() const { return shown.shape()[0]; }
  // Which axis of a shape it is. nullopt: none.
  std::optional<size_t> AxisOf(ShapeView shape) const {
    int64_t outer = 1;
    for (size_t i = 0; i < shape.size() && outer <= before; outer *= shape[i++]) {
      if (outer == before && shape[i] == elements()) return i;
    }
    return std::nullopt;
  }
};

UOp BelowReshapes(UOp u) {
  while (u.is(Op::kReshape)) u = u.src(0);
  return u;
}

UOp BelowViews(UOp u) {
  while (Is(u.op(), kMovement) || u.is(Op::kDetach)) u = u.src(0);
  return u;
}

bool IsReduce(UOp u, ReduceKind kind) {
  return u.is(Op::kReduce) && u.reduce_kind() == kind && IsFloat(u.dtype());
}

bool IsConstOf(UOp u, double value) {
  u = BelowViews(u);
  return u.is_const() && IsFloat(u.dtype()) && ScalarAsDouble(u.dtype(), u.const_word()) == value;
}

// A value of which the part is `filled`.
struct MaskedValue {
  UOp value;
  HiddenPart part;
};
std::optional<MaskedValue> MaskedIn(UOp where, double filled) {
  where = BelowReshapes(where);
  if (!where.is(Op::kWhere) || !IsConstOf(where.src(2), filled)) return std::nullopt;
  UOp shown = where.src(0);
  while (shown.is(Op::kReshape) || shown.is(Op::kExpand)) shown = shown.src(0);
  const bool counts = shown.is(Op::kCmpLt) && shown.shape().size() == 1 &&
                      shown.src(0).is(Op::kIota) && shown.src(1).shape().empty();
  if (!counts || shown.src(1).is_const() || shown.src(1).vmin() < 1) return std::nullopt;
  // Before that, views of it have axes of one element alone.
  UOp view = where.src(0);
  while (view.is(Op::kExpand)) view = view.src(0);
  if (BelowReshapes(view) != shown) return std::nullopt;
  MaskedValue masked{where.src(1), {shown}};
  const ShapeView to = where.shape(), from = view.shape();
  if (from.size() != to.size()) return std::nullopt;
  for (size_t i = 0; i < to.size(); masked.part.before *= to[i++]) {
    if (from[i] == 1) continue;
    return from[i] == to[i] ? std::optional(masked) : std::nullopt;
  }
  return std::nullopt;
}

// The maximum of the row that is subtracted, or the sum that is divided by, also where a finite
// number takes its place if it would not do.
UOp StatisticIn(UOp u, ReduceKind kind) {
  u = BelowViews(u);
  for (int i = 1; u.is(Op::kWhere) && i < 3; ++i) {
    const UOp other = BelowViews(u.src(3 - i)), statistic = BelowViews(u.src(i));
    const bool finite = other.is_const() && IsFloat(other.dtype()) &&
                        std::isfinite(ScalarAsDouble(other.dtype(), other.const_word()));
    if (finite && IsReduce(statistic, kind)) return statistic;
  }
  return IsReduce(u, kind) ? u : UOp();
}

class ScoreMasker {
 public:
  explicit ScoreMasker(Copier& copier) : copier_(copier), g_(*copier.out()) {}

  // What a REDUCE becomes; invalid: what it was.
  UOp Reduced(UOp reduce) {
    const bool most = IsReduce(reduce, ReduceKind::kMax);
    if (!most && !IsReduce(reduce, ReduceKind::kAdd)) return {};
    const auto masked = MaskedIn(reduce.src(0), most ? -INFINITY : 0);
    if (!masked) return {};
    const std::optional<size_t> axis = masked->part.AxisOf(reduce.src(0).shape());
    if (!axis || !IsOver(reduce, *axis)) return {};
    left_ = kMostNodes;
    part_ = masked->part;
    const UOp value = InShape(masked->value, reduce.src(0).shape());
    const UOp body = most ? Masked(value, *axis, -INFINITY) : Term(value, *axis);
    return body.valid() ? MakeLike(&g_, reduce, std::array{body}) : UOp();
  }

 private:
  static bool IsOver(UOp reduce, size_t axis) {
    for (const int64_t a : reduce.reduced_axes()) {
      if (a == static_cast<int64_t>(axis)) return true;
    }
    return false;
  }

  // A value of the old graph under views until it has the shape; invalid if none has.
  static UOp InShape(UOp value, ShapeView shape) {
    while (value.is(Op::kReshape) && !std::ranges::equal(value.shape(), shape)) {
      value = value.src(0);
    }
    return std::ranges::equal(value.shape(), shape) ? value : UOp();
  }

  // `value` of the old graph, in the new one, and `filled` at the hidden elements.
  UOp Masked(UOp value, size_t axis, double filled) {
    if (!value.valid()) return {};
    const Shape shape(value.shape().begin(), value.shape().end());
    std::vector<int64_t> ones(shape.size(), 1);
    ones[axis] = shape[axis];
    const UOp shown = g_.Make(Op::kReshape, {copier_.Made(part_.shown)}, ones);
    return g_.Make(Op::kWhere,
                   {ones == std::vector<int64_t>(shape.begin(), shape.end())
                        ? shown
                        : g_.Make(Op::kExpand, {shown}, std::vector(shape.begin(), shape.end())),
                    copier_.Made(value), g_.ConstFloat(value.dtype(), filled)});
  }

  // Weights, or weights times values, with 0 at the hidden elements.
  UOp Term(UOp u, size_t axis) {
    if (!u.valid() || --left_ < 0) return {};
    switch (u.op()) {
      case Op::kExp2:
        return With(u, 0, Difference(u.src(0), axis));
      case Op::kFDiv: {
        const UOp sum = StatisticIn(u.src(1), ReduceKind::kAdd);
        return sum.valid() ? With(u, 0, Term(u.src(0), axis)) : UOp();
      }
      case Op::kMul:
        for (int i = 0; i < 2; ++i) {
          const UOp weight = Term(u.src(i), axis);
          if (!weight.valid()) continue;
          const UOp value = Masked(u.src(1 - i), axis, 0);
          return MakeLike(&g_, u, i == 0 ? std::array{weight, value} : std::array{value, weight});
        }
        return {};
      case Op::kCast:
        return IsFloat(u.src(0).dtype()) ? With(u, 0, Term(u.src(0), axis)) : UOp();
      default:
        return View(u, axis, &ScoreMasker::Term);
    }
  }

  // (score - maximum) * scale, with -inf at the hidden elements.
  UOp Difference(UOp u, size_t axis) {
    if (!u.valid() || --left_ < 0) return {};
    if (u.is(Op::kMul)) {
      for (int i = 0; i < 2; ++i) {
        const UOp scale = BelowViews(u.src(1 - i));
        if (!scale.is_const() || !(ScalarAsDouble(scale.dtype(), scale.const_word()) > 0)) continue;
        return With(u, i, Difference(u.src(i), axis));
      }
      return {};
    }
    if (!u.is(Op::kSub)) return View(u, axis, &ScoreMasker::Difference);
    const UOp maximum = StatisticIn(u.src(1), ReduceKind::kMax);
    if (!maximum.valid() || !std::ranges::equal(maximum.src(0).shape(), u.shape())) return {};
    const auto masked = MaskedIn(maximum.src(0), -INFINITY);
    const bool same = masked && masked->part.shown == part_.shown &&
                      BelowReshapes(masked->value) == BelowReshapes(u.src(0)) &&
                      masked->part.AxisOf(u.shape()) == axis && IsOver(maximum, axis);
    return same ? With(u, 0, Masked(u.src(0), axis, -INFINITY)) : UOp();
  }

  using Below = UOp (ScoreMasker::*)(UOp, size_t);
  UOp View(UOp u, size_t axis, Below below) {
    if (u.num_src() == 0) return {};
    const UOp x = u.src(0);
    if (u.is(Op::kDetach)) return With(u, 0, (this->*below)(x, axis));
    if (u.is(Op::kExpand) && x.shape()[axis] == u.shape()[axis]) {
      return With(u, 0, (this->*below)(x, axis));
    }
    if (u.is(Op::kPermute)) {
      return With(u, 0, (this->*below)(x, static_cast<size_t>(u.axes()[axis])));
    }
    if (!u.is(Op::kReshape)) return {};
    HiddenPart at = part_;
    at.before = 1;
    for (size_t i = 0; i < axis; ++i) at.before *= u.shape()[i];
    const std::optional<size_t> from = at.AxisOf(x.shape());
    return from ? With(u, 0, (this->*below)(x, *from)) : UOp();
  }

  // `u` in the new graph with another source number `i`.
  UOp With(UOp u, int i, UOp source) {
    if (!source.valid()) return {};
    if (u.is(Op::kReshape)) return Reshaped(g_, source, {u.shape().begin(), u.shape().end()});
    std::vector<UOp> src;
    for (int s = 0; s < u.num_src(); ++s) src.push_back(s == i ? source : copier_.Made(u.src(s)));
    return MakeLike(&g_, u, src);
  }

  Copier& copier_;
  Graph& g_;
  HiddenPart part_;
  int left_ = 0;
};

// The maximum of masked scores that is subtracted from these; invalid: it is none.
UOp MaskedMaximumIn(UOp difference) {
  if (!difference.is(Op::kSub)) return {};
  const UOp maximum = StatisticIn(difference.src(1), ReduceKind::kMax);
  const bool masked = maximum.valid() && maximum.src(0) == difference.src(0) &&
                      MaskedIn(maximum.src(0), -INFINITY).has_value();
  return masked ? maximum : UOp();
}

bool HasMaskedMaximum(UOp u) {
  return IsReduce(u, ReduceKind::kMax) && MaskedIn(u.src(0), -INFINITY).has_value();
}

}  // namespace

absl::StatusOr<FrozenGraph> MaskScores(FrozenGraph graph, Budget* budget) {
  const Graph& from = *graph.graph;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  TG_RETURN_IF_ERROR(budget->SpendSteps(static_cast<int64_t>(order.size())));
  if (std::ranges::none_of(order, [&](uint32_t id) { return HasMaskedMaximum(from.at(id)); })) {
    return graph;
  }
  Copier copier(graph);
  ScoreMasker masker(copier);
  return copier.Run(budget, [&](UOp u) {
    const UOp made = masker.Reduced(u);
    return made.valid() ? made : copier.Same(u);
  });
}

bool KeepsMaskedRows(const Graph& graph, const FusionPlan& plan) {
  absl::flat_hash_set<uint32_t> stored, kept;
  for (const uint32_t id : plan.order) {
    if (plan.materialized(id)) stored.insert(id);
  }
  const ScoreRows rows = FindScoreRows(graph, plan.order, stored);
  for (const PlannedKernel& kernel : plan.kernels) {
    for (const uint32_t value : kernel.kept) {
      const auto row = rows.find(value);
      if (row != rows.end()) kept.insert(row->second.softmax);
    }
  }
  return std::ranges::all_of(plan.order, [&](uint32_t id) {
    const UOp maximum = MaskedMaximumIn(graph.at(id));
    return !maximum.valid() || kept.contains(maximum.id());
  });
}

}  // namespace telegrad
