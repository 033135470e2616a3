// Every row that divides or compares works on the linear form of its operand (linear.h) and first
// makes sure that its true value lies within the type. The one idea behind the splits: if N = d*S +
// B, d divides c, and all values of B have the same quotient t by d, then
//     N / c = (S + t) / (c/d)    and    N % c = d * ((S + t) % (c/d)) + (B - t*d)    and
//     N < K becomes a bound on S alone if floor((K - 1 - B) / d) is one value.
#include "engine/rules/divmod.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/rules/linear.h"

namespace telegrad {
namespace {

using namespace pattern;  // NOLINT: the names of rows

// --- sums ---

bool IsDivMod(UOp u) { return u.is(Op::kFloorDiv) || u.is(Op::kFloorMod); }
int DivMods(const Linear& sum) {
  return static_cast<int>(std::ranges::count_if(sum.terms(), IsDivMod, &Linear::Term::atom));
}
bool Simpler(const Linear& a, const Linear& b) {
  return std::pair(DivMods(a), a.terms().size()) < std::pair(DivMods(b), b.terms().size());
}
bool IsModulo(UOp u) {
  return u.is(Op::kFloorMod) && u.src(1).is_const() && u.src(1).const_word() > 0;
}

// `sum` with m*(y % c) + m*c*(y / c) replaced by m*y; `quotient` is y / c.
std::optional<Linear> JoinDivision(const Linear& sum, const Linear::Term& mod, const Linear& y,
                                   const Linear& quotient, int64_t high) {
  Linear out = sum;
  if (!out.AddTerm(mod.atom, -mod.coefficient) || !out.AddScaled(quotient, -high) ||
      !out.AddScaled(y, mod.coefficient)) {
    return std::nullopt;
  }
  // Unless the quotient leaves the sum, y % c next to y / c is as short and says more.
  const bool leaves = std::ranges::none_of(out.terms(), [&](const Linear::Term& t) {
    return IsDivMod(t.atom) && std::ranges::find(quotient.terms(), t.atom, &Linear::Term::atom) !=
                                   quotient.terms().end();
  });
  if (!leaves || !Simpler(out, sum)) return std::nullopt;
  return out;
}

// `sum` with m*(y % c) + m*c*(z % e) replaced by m*(u % (c*e)), where z = y / c + w and u = y +
// c*w: then u / c = z and u % c = y % c.
std::optional<Linear> JoinModulo(const Linear& sum, const Linear::Term& mod,
                                 const Linear::Term& upper, const Linear& y, const Linear& quotient,
                                 Rewriter& b) {
  const int64_t c = mod.atom.src(1).const_word();
  const std::optional<Linear> z = Linear::Of(upper.atom.src(0));
  int64_t radix;
  if (!z || __builtin_mul_overflow(upper.atom.src(1).const_word(), c, &radix)) return std::nullopt;
  Linear w = *z, u = y;
  if (!w.AddScaled(quotient, -1) || DivMods(w) > 0 || !u.AddScaled(w, c) || !u.Range() ||
      !z->Range()) {
    return std::nullopt;
  }
  const UOp divisor = b.graph()->Const(y.dtype(), radix);
  if (divisor.const_word() != radix) return std::nullopt;
  const UOp joined = b.Make(Op::kFloorMod, {u.Build(b), divisor});
  if (!joined.valid()) return std::nullopt;
  const std::optional<Linear> part = Linear::Of(joined);
  Linear out = sum;
  if (!part || !out.AddTerm(mod.atom, -mod.coefficient) ||
      !out.AddTerm(upper.atom, -upper.coefficient) || !out.AddScaled(*part, mod.coefficient) ||
      !Simpler(out, sum)) {
    return std::nullopt;
  }
  return out;
}

// Finds one modulo in `sum` whose division is there as well.
std::optional<Linear> Join(const Linear& sum, Rewriter& b) {
  for (const Linear::Term& mod : sum.terms()) {
    int64_t high;
    if (!IsModulo(mod.atom) ||
        __builtin_mul_overflow(mod.coefficient, mod.atom.src(1).const_word(), &high) ||
        std::ranges::none_of(sum.terms(), [&](const Linear::Term& t) {
          return t.atom != mod.atom && t.coefficient % high == 0 && IsDivMod(t.atom);
        })) {
      continue;
    }
    const UOp division = b.Make(Op::kFloorDiv, {mod.atom.src(0), mod.atom.src(1)});
    if (!division.valid()) return std::nullopt;
    const std::optional<Linear> y = Linear::Of(mod.atom.src(0)), q = Linear::Of(division);
    if (!y || !q || !y->Range()) continue;
    if (auto out = JoinDivision(sum, mod, *y, *q, high)) return out;
    for (const Linear::Term& upper : sum.terms()) {
      if (upper.coefficient != high || !IsModulo(upper.atom)) continue;
      if (auto out = JoinModulo(sum, mod, upper, *y, *q, b)) return out;
    }
  }
  return std::nullopt;
}

UOp Sum(Rewriter& b, const Match& m) {
  std::optional<Linear> sum = Linear::Of(m.root);
  if (!sum) return {};
  while (std::optional<Linear> joined = Join(*sum, b)) sum = std::move(joined);
  return sum->Build(b);
}

// --- division ---

// N = d*S + B with `S` already divided by d and B's quotient t by d added to it.
struct Split {
  int64_t d;
  Linear high;  // S + t
  Linear low;   // B - t*d, within [0, d)
};

// The split by `d`, if there is one and it moves at least one term into S.
std::optional<Split> SplitBy(const Linear& n, int64_t d) {
  Split out{d, Linear(n.dtype()), Linear(n.dtype())};
  bool ok = out.low.AddConstant(n.constant());
  for (const auto& [atom, coefficient] : n.terms()) {
    const bool high = coefficient % d == 0;
    ok =
        ok && (high ? out.high.AddTerm(atom, coefficient / d) : out.low.AddTerm(atom, coefficient));
  }
  if (!ok || out.high.is_constant()) return std::nullopt;
  const std::optional<Linear::Bounds> range = out.low.Range();
  if (!range) return std::nullopt;
  const std::optional<int64_t> t = range->Quotient(d);
  if (!t || !out.high.AddConstant(*t) || !out.low.AddConstant(*t, -d)) return std::nullopt;
  return out;
}

// Candidates for d: the factors that a coefficient shares with `c`, largest first.
std::vector<int64_t> CommonFactors(const Linear& n, int64_t c) {
  std::vector<int64_t> out{Gcd(n.GcdOfTerms(), c)};
  for (const Linear::Term& term : n.terms()) out.push_back(Gcd(term.coefficient, c));
  std::ranges::sort(out, std::greater<>());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  while (!out.empty() && out.back() <= 1) out.pop_back();
  return out;
}

std::optional<Split> SplitByFactorOf(const Linear& n, int64_t c) {
  for (int64_t d : CommonFactors(n, c)) {
    std::optional<Split> split = SplitBy(n, d);
    if (split && split->high.Range()) return split;
  }
  return std::nullopt;
}

// n = c*quotient + rest, coefficients of rest below c in magnitude, its constant in [0, c).
bool Reduce(const Linear& n, int64_t c, Linear* quotient, Linear* rest) {
  const int64_t r = n.constant() % c;
  bool ok =
      quotient->AddConstant(FloorDivide(n.constant(), c)) && rest->AddConstant(r < 0 ? r + c : r);
  for (const auto& [atom, coefficient] : n.terms()) {
    ok = ok && quotient->AddTerm(atom, coefficient / c) && rest->AddTerm(atom, coefficient % c);
  }
  return ok;
}

UOp Plus(Rewriter& b, const Linear& sum, UOp u) {
  return sum.is_constant() && sum.constant() == 0 ? u : b.Make(Op::kAdd, {u, sum.Build(b)});
}

UOp Divide(Rewriter& b, const Match& m) {
  const int64_t c = m.k0();
  const DType dtype = m.root.dtype();
  const std::optional<Linear> n = Linear::Of(m.x());
  Linear quotient(dtype), rest(dtype);
  if (!n || !n->Range() || !Reduce(*n, c, &quotient, &rest)) return {};
  const std::optional<Linear::Bounds> range = rest.Range();
  if (!range) return {};
  if (const std::optional<int64_t> t = range->Quotient(c)) {
    return quotient.AddConstant(*t) ? quotient.Build(b) : UOp();
  }
  if (const std::optional<Split> split = SplitByFactorOf(rest, c)) {
    const UOp inner =
        b.Make(Op::kFloorDiv, {split->high.Build(b), b.graph()->Const(dtype, c / split->d)});
    return Plus(b, quotient, inner);
  }
  return Plus(b, quotient, b.Make(Op::kFloorDiv, {rest.Build(b), m.c0()}));
}

// --- modulo ---

// a*(z % e) is a*z modulo c if c divides a*e.
Linear DropInnerModulo(const Linear& n, int64_t c) {
  Linear out = n;
  for (const auto& [atom, a] : n.terms()) {
    if (!atom.is(Op::kFloorMod) || !atom.src(1).is_const()) continue;
    const int64_t e = atom.src(1).const_word();
    if (e <= 0 || (Wide{a} * e) % c != 0) continue;
    const std::optional<Linear> z = Linear::Of(atom.src(0));
    Linear next = out;
    if (z && z->Range() && next.AddTerm(atom, -a) && next.AddScaled(*z, a) && next.Range()) {
      out = std::move(next);
    }
  }
  return out;
}

UOp Modulo(Rewriter& b, const Match& m) {
  const int64_t c = m.k0();
  const DType dtype = m.root.dtype();
  const std::optional<Linear> n = Linear::Of(m.x());
  Linear quotient(dtype), rest(dtype);
  if (!n || !n->Range() || !Reduce(DropInnerModulo(*n, c), c, &quotient, &rest)) return {};
  const std::optional<Linear::Bounds> range = rest.Range();
  if (!range) return {};
  if (const std::optional<int64_t> t = range->Quotient(c)) {
    return rest.AddConstant(*t, -c) ? rest.Build(b) : UOp();
  }
  if (const std::optional<Split> split = SplitByFactorOf(rest, c)) {
    const UOp inner =
        b.Make(Op::kFloorMod, {split->high.Build(b), b.graph()->Const(dtype, c / split->d)});
    return Plus(b, split->low, b.Make(Op::kMul, {inner, b.graph()->Const(dtype, split->d)}));
  }
  return b.Make(Op::kFloorMod, {rest.Build(b), m.c0()});
}

// --- comparisons ---

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

// --- conditions ---

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

constexpr size_t kMaxConditions = 16;

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
  std::ranges::sort(parts, [](UOp p, UOp q) {
    const bool pc = p.is_const(), qc = q.is_const();
    return pc != qc ? qc : p.id() < q.id();
  });
  UOp out = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) out = b.Make(op, {out, parts[i]});
  return out;
}

constexpr Rule kRows[] = {
    rule((x / c0) / c1, x / (c0 * c1), when(kSigned, 0 < c0 && 0 < c1 && fits(c0 * c1))),
    rule((x % c0) / c1, (x / c1) % (c0 / c1), when(kSigned, 0 < c1 && 0 < c0 && c0 % c1 == 0)),
    rule((x % c0) % c1, x % c1, when(kSigned, 0 < c1 && 0 < c0 && c0 % c1 == 0)),
    rule(x / c0, Divide, when(kSigned, 0 < c0)),
    rule(x % c0, Modulo, when(kSigned, 0 < c0)),

    rule((x * c0) * y, (x * y) * c0, when(kSigned)),
    rule(x* c0, Sum, when(kSigned)),
    rule(x + y, Sum, when(kSigned)),
    rule(x - y, Sum, when(kSigned)),
    rule(-x, Sum, when(kSigned)),

    rule(x / c0 < c1, x < c0 * c1, when(kSigned, 0 < c0 && fits(c0 * c1))),
    rule(c0 < x / c1, (c0 * c1 + c1) - 1 < x, when(kSigned, 0 < c1 && fits((c0 * c1 + c1) - 1))),
    rule(x < y, Less, when(kSigned)),
    rule(x == y, Equality, when(kSigned)),
    rule(x != y, Equality, when(kSigned)),

    rule((x < c0) ^ 1, NotLess, when(kBools)),
    rule((c0 < x) ^ 1, NotLess, when(kBools)),
    rule((x < c0) & (x < c1), TwoUpperBounds, when(kBools)),
    rule((x < c0) | (x < c1), TwoUpperBounds, when(kBools)),
    rule((c0 < x) & (c1 < x), TwoLowerBounds, when(kBools)),
    rule((c0 < x) | (c1 < x), TwoLowerBounds, when(kBools)),
    rule((x < c0) & (c1 < x), EmptyInterval, when(kBools)),
    rule(x& y, Chain, when(kBools)),
    rule(x | y, Chain, when(kBools)),
};

}  // namespace

constexpr RuleTable kDivMod{"divmod", kRows};

}  // namespace telegrad
