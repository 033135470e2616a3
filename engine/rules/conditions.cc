// Comparisons become linear forms against a constant or against each other. Conjunctions and
// disjunctions become one sorted chain without redundant conditions.
#include "engine/rules/conditions.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/rules/facts.h"
#include "engine/rules/linear.h"

namespace telegrad {
namespace {

// The difference of the operands, where it says more than they do: one of them is constant, or they
// share a term. nullopt also where an operand may have wrapped.
std::optional<Linear> Difference(UOp left, UOp right) {
  const std::optional<Linear> l = Linear::Of(left), r = Linear::Of(right);
  if (!l || !r || !l->Range() || !r->Range()) return std::nullopt;
  Linear d = *l;
  if (!d.AddScaled(*r, -1)) return std::nullopt;
  const bool shares = d.terms().size() < l->terms().size() + r->terms().size();
  if (!shares && !l->is_constant() && !r->is_constant()) return std::nullopt;
  return d;
}

// The terms of `d` with coefficient / divisor, those of the given sign only (0: all).
std::optional<Linear> Terms(const Linear& d, int64_t divisor, int sign, int64_t constant = 0) {
  Linear out(d.dtype(), constant);
  for (const auto& [atom, coefficient] : d.terms()) {
    if (sign != 0 && (coefficient > 0) != (sign > 0)) continue;
    if (!out.AddTerm(atom, coefficient / divisor)) return std::nullopt;
  }
  if (!out.Range()) return std::nullopt;
  return out;
}

// The terms of `d` against the constant `k`, both already within the type: terms < k, or -k <
// -terms where every term is negative; likewise for == and !=.
UOp CompareTerms(Rewriter& b, Op op, const Linear& d, int64_t k) {
  const bool all_negative =
      std::ranges::all_of(d.terms(), [](const Linear::Term& t) { return t.coefficient < 0; });
  const bool flip =
      op == Op::kCmpLt ? all_negative : !d.is_constant() && d.terms()[0].coefficient < 0;
  const std::optional<Linear> terms = Terms(d, flip ? -1 : 1, 0);
  if (k == INT64_MIN) return {};
  const UOp bound = b.graph()->Const(d.dtype(), flip ? -k : k);
  if (!terms || bound.const_word() != (flip ? -k : k)) return {};
  const UOp sum = terms->Build(b);
  return op == Op::kCmpLt && flip ? b.Make(op, {bound, sum}) : b.Make(op, {sum, bound});
}

// Both sides keep terms: the positive ones stay left, the others go right with the constant.
UOp CompareSides(Rewriter& b, Op op, const Linear& d) {
  const std::optional<Linear> left = Terms(d, 1, 1), right = Terms(d, -1, -1, -d.constant());
  if (!left || !right) return {};
  return b.Make(op, {left->Build(b), right->Build(b)});
}

bool HasBothSigns(const Linear& d) {
  bool positive = false, negative = false;
  for (const Linear::Term& term : d.terms()) (term.coefficient > 0 ? positive : negative) = true;
  return positive && negative;
}

constexpr size_t kMaxConditions = 16;

// Drops the conditions of a conjunction that the others imply. False if they contradict each other.
bool DropImplied(std::vector<UOp>* parts) {
  for (size_t i = 0; i < parts->size() && parts->size() > 1;) {
    Facts others;
    for (size_t j = 0; j < parts->size(); ++j) {
      if (j != i) others.Add((*parts)[j]);
    }
    const std::optional<bool> decided = others.Decide((*parts)[i]);
    if (decided == false) return false;
    if (decided == true) {
      parts->erase(parts->begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return true;
}

}  // namespace

UOp Less(Rewriter& b, const Match& m) {
  const std::optional<Linear> d = Difference(m.x(), m.y());
  if (!d || d->constant() == INT64_MIN) return {};
  if (d->is_constant()) return b.graph()->Const(DType::kBool, d->constant() < 0);
  const bool one_sided = m.x().bounds().constant() || m.y().bounds().constant();
  if (!one_sided && HasBothSigns(*d)) return CompareSides(b, Op::kCmpLt, *d);
  const int64_t k = -d->constant();
  std::vector<int64_t> factors{d->GcdOfTerms()};
  for (const Linear::Term& term : d->terms()) factors.push_back(Gcd(term.coefficient, 0));
  std::ranges::sort(factors, std::greater<>());
  for (int64_t f : factors) {
    if (f <= 1) break;
    Linear high(d->dtype()), low(d->dtype());
    bool ok = true;
    for (const auto& [atom, coefficient] : d->terms()) {
      ok = ok && (coefficient % f == 0 ? high.AddTerm(atom, coefficient / f)
                                       : low.AddTerm(atom, coefficient));
    }
    const std::optional<Linear::Bounds> range = low.Range();
    if (!ok || !range || !high.Range()) continue;
    const Linear::Bounds left{Wide{k} - 1 - range->hi, Wide{k} - 1 - range->lo};
    const std::optional<int64_t> q = left.Quotient(f);
    if (q && *q < INT64_MAX) return CompareTerms(b, Op::kCmpLt, high, *q + 1);
  }
  return CompareTerms(b, Op::kCmpLt, *d, k);
}

UOp Equality(Rewriter& b, const Match& m) {
  const Op op = m.root.op();
  const std::optional<Linear> d = Difference(m.x(), m.y());
  if (!d || d->constant() == INT64_MIN) return {};
  const int64_t k = -d->constant();
  const auto constant = [&](bool equal) {
    return b.graph()->Const(DType::kBool, equal == (op == Op::kCmpEq));
  };
  if (d->is_constant()) return constant(k == 0);
  const bool one_sided = m.x().bounds().constant() || m.y().bounds().constant();
  if (!one_sided && HasBothSigns(*d)) return CompareSides(b, op, *d);
  const int64_t g = d->GcdOfTerms();
  if (k % g != 0) return constant(false);
  const std::optional<Linear> terms = Terms(*d, g, 0);
  return terms ? CompareTerms(b, op, *terms, k / g) : UOp();
}

UOp NotLess(Rewriter& b, const Match& m) {
  if (!IsSigned(m.c0().dtype())) return {};
  const UOp less = m.root.src(m.root.src(0).is(Op::kCmpLt) ? 0 : 1);
  const bool constant_left = less.src(0).is_const();
  int64_t k;
  if (__builtin_add_overflow(m.k0(), constant_left ? 1 : -1, &k)) return {};
  const UOp bound = b.graph()->Const(m.c0().dtype(), k);
  if (bound.const_word() != k) return {};
  return constant_left ? b.Make(Op::kCmpLt, {m.x(), bound}) : b.Make(Op::kCmpLt, {bound, m.x()});
}

// Two bounds on one value: the tighter one for "and", the looser one for "or".
UOp TwoUpperBounds(Rewriter&, const Match& m) {
  if (!IsSigned(m.c0().dtype())) return {};
  const bool first = m.root.is(Op::kAnd) == (m.k0() < m.k1());
  const UOp a = m.root.src(0), other = m.root.src(1);
  return (a.src(1) == m.c0()) == first ? a : other;
}

UOp TwoLowerBounds(Rewriter&, const Match& m) {
  if (!IsSigned(m.c0().dtype())) return {};
  const bool first = m.root.is(Op::kAnd) == (m.k0() > m.k1());
  const UOp a = m.root.src(0), other = m.root.src(1);
  return (a.src(0) == m.c0()) == first ? a : other;
}

// c1 < x and x < c0 with nothing between.
UOp EmptyInterval(Rewriter& b, const Match& m) {
  if (!IsSigned(m.c0().dtype()) || Wide{m.k1()} + 1 < m.k0()) return {};
  return b.graph()->Const(DType::kBool, 0);
}

// y % c with y = c*q + B, where B stays so close to [0, c) that only one of its wraps can hold.
UOp ModuloBelow(Rewriter& b, const Match& m) {
  const UOp y = m.x();
  const int64_t c = m.k0(), k = m.k1();
  const std::optional<Linear> n = Linear::Of(y);
  if (!n || !n->Range()) return {};
  for (const auto residues : {Linear::Residues::kNearest, Linear::Residues::kTruncated}) {
    Linear quotient(y.dtype()), rest(y.dtype());
    if (!n->DivideBy(c, residues, &quotient, &rest)) continue;
    const std::optional<Linear::Bounds> range = rest.Range();
    if (!range) continue;
    const Wide shift = FloorDivideWide(range->lo - (k - c), c) * c;  // lo to [k - c, k)
    const Wide lo = range->lo - shift, hi = range->hi - shift;
    if (hi >= c || !rest.AddConstant(static_cast<int64_t>(-shift)) || !rest.Range()) continue;
    const UOp sum = rest.Build(b);
    const UOp below = b.Make(Op::kCmpLt, {sum, m.c1()});
    if (lo >= 0) return below;
    return b.Make(Op::kAnd, {b.Make(Op::kCmpLt, {b.graph()->Const(y.dtype(), -1), sum}), below});
  }
  return {};
}

UOp ModuloAbove(Rewriter& b, const Match& m) {
  const UOp y = m.x();
  const int64_t k = m.k0(), c = m.k1();
  const std::optional<Linear> n = Linear::Of(y);
  if (!n || !n->Range()) return {};
  for (const auto residues : {Linear::Residues::kNearest, Linear::Residues::kTruncated}) {
    Linear quotient(y.dtype()), rest(y.dtype());
    if (!n->DivideBy(c, residues, &quotient, &rest)) continue;
    const std::optional<Linear::Bounds> range = rest.Range();
    if (!range) continue;
    const Wide shift = FloorDivideWide(range->lo, c) * c;  // lo to [0, c)
    const Wide hi = range->hi - shift;
    if (hi > Wide{c} + k || !rest.AddConstant(static_cast<int64_t>(-shift)) || !rest.Range()) {
      continue;
    }
    const UOp sum = rest.Build(b);
    const UOp above = b.Make(Op::kCmpLt, {m.c0(), sum});
    if (hi < c) return above;
    return b.Make(Op::kAnd, {above, b.Make(Op::kCmpLt, {sum, m.c1()})});
  }
  return {};
}

// One chain of the distinct conditions in the order of their ids. Pairs of bounds meet here,
// wherever they were in the chain.
UOp Chain(Rewriter& b, const Match& m) {
  const Op op = m.root.op();
  std::vector<UOp> stack{m.root}, parts;
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is(op)) {
      stack.push_back(u.src(1));
      stack.push_back(u.src(0));
    } else {
      parts.push_back(u);
    }
    if (parts.size() + stack.size() > kMaxConditions) return {};
  }
  const auto variable = [](UOp u) {
    if (!u.is(Op::kCmpLt)) return UOp();
    if (u.src(0).is_const()) return u.src(1);
    return u.src(1).is_const() ? u.src(0) : UOp();
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = i + 1; j < parts.size();) {
      bool merged = parts[i] == parts[j];
      const UOp v = variable(parts[i]);
      if (!merged && v.valid() && v == variable(parts[j]) && parts.size() > 2) {
        const UOp both = b.Make(op, {parts[i], parts[j]});
        if (both.valid() && !both.is(op)) {
          parts[i] = both;
          merged = true;
        }
      }
      if (merged) {
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(j));
        j = i + 1;
      } else {
        ++j;
      }
    }
  }
  if (op == Op::kAnd && !DropImplied(&parts)) return b.graph()->Const(DType::kBool, 0);
  std::ranges::sort(parts, [](UOp p, UOp q) {
    const bool pc = p.is_const(), qc = q.is_const();
    return pc != qc ? qc : p.id() < q.id();
  });
  UOp out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) out = b.Make(op, {out, parts[i]});
  return out;
}

}  // namespace telegrad
