// Each step asks what the body becomes if a comparison is known: where that is the reduction's
// identity, the comparison selects, whatever spelled it (a WHERE, a product with a cast mask of
// integers, a PAD, a chain of them).
//
//   unused     the body does not depend on the axis r: its value, n times
//   equality   it is the identity unless r == e: its value at r := e, if e is in range
//   interval   it is the identity unless b <= r < e, the same value elsewhere: that, max(0, e - b)
//              times
//   places     it is the identity unless the output's axis i == e(r): the values of all r, each
//   sent
//              to e(r)
//
// What is exact: reducing the identity with a value is the value, for every float too (NaN, -inf),
// except that +0 + -0 is +0: see may_be_negative_zero(). A product of a float with a mask is no
// selection: 0 times infinity is NaN. n equal floats added one by one round n times, their product
// with n once: such a sum may differ as any reassociated one.
#include "engine/schedule/masked_reduction.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

constexpr size_t kMaxComparisons = 8;

UOp Mirrored(Graph& g, UOp equality) {
  const Op op = equality.is(Op::kCmpEq) ? Op::kCmpNe : Op::kCmpEq;
  return g.Make(op, {equality.src(0), equality.src(1)});
}

}  // namespace

MaskedReduction::MaskedReduction(IndexForm* form, ReduceKind kind, UOp body, uint32_t axes,
                                 Shape dims)
    : form_(*form),
      b_(form->b()),
      kind_(kind),
      identity_(form->graph().ConstWord(body.dtype(), ReduceIdentity(kind, body.dtype()))),
      body_(body),
      axes_(axes),
      dims_(std::move(dims)) {}

MaskedReduction::MaskedReduction(IndexForm* form, UOp identity, UOp body, uint32_t axes, Shape dims)
    : form_(*form),
      b_(form->b()),
      kind_(ReduceKind::kMax),
      identity_(identity),
      body_(body),
      axes_(axes),
      dims_(std::move(dims)) {}

bool MaskedReduction::Eliminate() {
  bool any = false;
  for (bool changed = true; changed;) {
    changed = false;
    for (int axis = 0; axis < static_cast<int>(dims_.size()); ++axis) {
      if (((axes_ >> axis) & 1) == 0 || !body_.valid()) continue;
      if (!EliminateUnused(axis) && !EliminateEqual(axis) && !EliminateInterval(axis)) continue;
      axes_ &= ~(uint32_t{1} << axis);
      changed = any = true;
    }
  }
  return any && body_.valid();
}

UOp MaskedReduction::Max(UOp x, UOp y) {
  if (x.vmin() >= y.vmax()) return x;
  if (y.vmin() >= x.vmax()) return y;
  return b_.Make(Op::kMax, {x, y});
}

UOp MaskedReduction::Min(UOp x, UOp y) {
  if (x.vmax() <= y.vmin()) return x;
  if (y.vmax() <= x.vmin()) return y;
  return b_.Make(Op::kWhere, {b_.Make(Op::kCmpLt, {x, y}), x, y});
}

UOp MaskedReduction::Repeated(UOp value, UOp n) {
  const DType dtype = value.dtype();
  Graph& g = form_.graph();
  if (IsIdentity(value)) return value;
  const UOp some = b_.Make(Op::kCmpLt, {g.Index(0), n});
  switch (kind_) {
    case ReduceKind::kMax:
      return b_.Make(Op::kWhere, {some, value, identity_});
    case ReduceKind::kMul:
      return {};
    case ReduceKind::kAdd:
      break;
  }
  const UOp sum = b_.Make(Op::kMul, {value, b_.Make(Op::kCast, dtype, {n})});
  if (IsInt(dtype)) return sum;
  const bool finite = value.is_const() && std::isfinite(std::bit_cast<double>(value.const_word()));
  picked_ = picked_ || !finite || std::signbit(std::bit_cast<double>(value.const_word()));
  // 0 times infinity is not the sum of nothing.
  return finite ? sum : b_.Make(Op::kWhere, {some, sum, identity_});
}

bool MaskedReduction::EliminateUnused(int axis) {
  if (DependsOn(body_, axis)) return false;
  const UOp folded = Repeated(body_, form_.graph().Index(Size(axis)));
  if (!folded.valid()) return false;
  body_ = folded;
  return true;
}

std::optional<std::vector<UOp>> MaskedReduction::Comparisons(Op op, int axis) {
  std::vector<UOp> found;
  for (const UOp u : form_.Cone(body_)) {
    const bool right = u.is(op) || (op == Op::kCmpEq && u.is(Op::kCmpNe));
    if (!right || !IsInt(u.src(0).dtype()) || !DependsOn(u, axis)) continue;
    if (found.size() == kMaxComparisons) return std::nullopt;
    found.push_back(u);
  }
  return found;
}

UOp MaskedReduction::Assuming(UOp comparison, bool holds) {
  Graph& g = form_.graph();
  std::vector<std::pair<UOp, UOp>> known{{comparison, g.Const(DType::kBool, holds)}};
  if (!comparison.is(Op::kCmpLt)) {
    known.emplace_back(Mirrored(g, comparison), g.Const(DType::kBool, !holds));
  }
  return form_.Replace(body_, known);
}

// l == r as c * RANGE + rest == 0 modulo 2^64, which for c = 1 or -1 has one solution.
UOp MaskedReduction::Solve(UOp equality, int axis) {
  bool exact = true;
  std::optional<Linear> sum = form_.Widened(equality.src(0), &exact);
  const std::optional<Linear> right = form_.Widened(equality.src(1), &exact);
  if (!sum || !right || !sum->AddScaled(*right, -1)) return {};
  const UOp range = Range(axis);
  const auto it = std::ranges::find(sum->terms(), range, &Linear::Term::atom);
  if (it == sum->terms().end() || std::abs(it->coefficient) != 1) return {};
  const int64_t c = it->coefficient;
  Linear rest(DType::kInt64);
  if (!sum->AddTerm(range, -c) || !rest.AddScaled(*sum, -c)) return {};
  const UOp place = rest.Build(b_);
  return place.valid() && !DependsOn(place, axis) ? place : UOp();
}

UOp MaskedReduction::ValueAt(UOp equality, int axis, UOp place) {
  const std::pair<UOp, UOp> there[] = {{Range(axis), place}};
  return form_.Replace(Assuming(equality, equality.is(Op::kCmpEq)), there);
}

bool MaskedReduction::EliminateEqual(int axis) {
  const auto comparisons = Comparisons(Op::kCmpEq, axis);
  if (!comparisons) return false;
  for (const UOp c : *comparisons) {
    const UOp place = Solve(c, axis);
    if (!place.valid() || !IsIdentity(Assuming(c, c.is(Op::kCmpNe)))) continue;
    const UOp value = ValueAt(c, axis, place);
    if (!value.valid()) return false;
    body_ = b_.Make(Op::kWhere, {InRange(b_, place, Size(axis)), value, identity_});
    picked_ = picked_ || IsFloat(body_.dtype());
    return true;
  }
  return false;
}

bool MaskedReduction::AddBound(const Condition& condition, int axis, UOp* begin, UOp* end) {
  // condition: 0 < d, or, if it must not hold, 0 < 1 - d.
  bool exact = true;
  std::optional<Linear> d = form_.Widened(condition.node.src(1), &exact);
  const std::optional<Linear> left = form_.Widened(condition.node.src(0), &exact);
  if (!d || !left || !exact || !left->Range() || !d->Range() || !d->AddScaled(*left, -1)) {
    return false;
  }
  if (!condition.wanted) {
    Linear negated(DType::kInt64, 1);
    if (!negated.AddScaled(*d, -1)) return false;
    d = std::move(negated);
  }
  const UOp range = Range(axis);
  const auto it = std::ranges::find(d->terms(), range, &Linear::Term::atom);
  if (it == d->terms().end()) return false;
  const int64_t c = it->coefficient, size = std::abs(c);
  Linear rest = *d;
  if (!rest.AddTerm(range, -c) || !rest.Range() || !d->Range()) return false;
  // c > 0: RANGE >= ceil((1 - rest) / c). c < 0: RANGE <= floor((rest - 1) / -c).
  Linear bound(DType::kInt64, c > 0 ? size : -1);
  if (!bound.AddScaled(rest, c > 0 ? -1 : 1) || !bound.Range()) return false;
  const UOp numerator = bound.Build(b_);
  if (!numerator.valid() || DependsOn(numerator, axis)) return false;
  Graph& g = form_.graph();
  UOp limit = b_.Make(Op::kFloorDiv, {numerator, g.Index(size)});
  if (c > 0) {
    *begin = Max(*begin, limit);
  } else {
    *end = Min(*end, b_.Make(Op::kAdd, {limit, g.Index(1)}));
  }
  return true;
}

bool MaskedReduction::EliminateInterval(int axis) {
  if (kind_ == ReduceKind::kMul) return false;
  const auto comparisons = Comparisons(Op::kCmpLt, axis);
  if (!comparisons || comparisons->empty()) return false;
  Graph& g = form_.graph();
  UOp begin = g.Index(0), end = g.Index(Size(axis));
  std::vector<std::pair<UOp, UOp>> all;
  for (const UOp c : *comparisons) {
    const bool wanted = IsIdentity(Assuming(c, false));
    if (!wanted && !IsIdentity(Assuming(c, true))) return false;
    if (!AddBound({c, wanted}, axis, &begin, &end)) return false;
    all.emplace_back(c, g.Const(DType::kBool, wanted));
  }
  const UOp value = form_.Replace(body_, all);
  if (!value.valid() || DependsOn(value, axis)) return false;
  const UOp length = b_.Make(Op::kSub, {end, begin});
  const UOp folded = Repeated(value, Max(length, g.Index(0)));
  if (!folded.valid()) return false;
  body_ = folded;
  return true;
}

std::optional<std::vector<MaskedReduction::ComputedIndex>> MaskedReduction::ToComputedIndices() {
  std::vector<ComputedIndex> indices;
  uint32_t taken = axes_;
  for (int axis = 0; axis < static_cast<int>(dims_.size()); ++axis) {
    if (((taken >> axis) & 1) != 0 || !DependsOn(body_, axis)) continue;
    const auto comparisons = Comparisons(Op::kCmpEq, axis);
    if (!comparisons) return std::nullopt;
    for (const UOp c : *comparisons) {
      const UOp place = Solve(c, axis);
      if (!place.valid() || (form_.Axes(place) & axes_) == 0) continue;
      if (!IsIdentity(Assuming(c, c.is(Op::kCmpNe)))) continue;
      const UOp value = ValueAt(c, axis, place);
      if (!value.valid()) return std::nullopt;
      // Earlier indices may be on this axis: they move along.
      const std::pair<UOp, UOp> there[] = {{Range(axis), place}};
      for (ComputedIndex& p : indices) p.index = form_.Replace(p.index, there);
      body_ = value;
      indices.push_back({axis, place});
      break;
    }
  }
  // An axis that a place still depends on stays an axis; one that was sent elsewhere cannot.
  for (const ComputedIndex& p : indices) {
    for (const ComputedIndex& q : indices) {
      if (DependsOn(p.index, q.axis)) return std::nullopt;
    }
    if (DependsOn(body_, p.axis)) return std::nullopt;
  }
  if (indices.empty()) return std::nullopt;
  return indices;
}

}  // namespace telegrad
