// Every row that divides or compares works on the linear form of its operand (linear.h) and first
// makes sure that its true value lies within the type. The one idea behind the splits: if N = d*S +
// B, d divides c, and all values of B have the same quotient t by d, then
//     N / c = (S + t) / (c/d)    and    N % c = d * ((S + t) % (c/d)) + (B - t*d)    and
//     N < K becomes a bound on S alone if floor((K - 1 - B) / d) is one value (conditions.cc).
#include "engine/rules/divmod.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/rules/conditions.h"
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
std::optional<Linear> JoinTerms(const Linear& sum, Rewriter& b) {
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

UOp SimplifySum(Rewriter& b, const Match& m) {
  std::optional<Linear> sum = Linear::Of(m.root);
  if (!sum) return {};
  while (std::optional<Linear> joined = JoinTerms(*sum, b)) sum = std::move(joined);
  return sum->Build(b);
}

// --- division ---

// N = d*S + B with `S` already divided by d and B's quotient t by d added to it.
struct QuotientParts {
  int64_t d;
  Linear high;  // S + t
  Linear low;   // B - t*d, within [0, d)
};

// The split by `d`, if there is one and it moves at least one term into S.
std::optional<QuotientParts> SplitBy(const Linear& n, int64_t d) {
  QuotientParts out{d, Linear(n.dtype()), Linear(n.dtype())};
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

std::optional<QuotientParts> SplitByFactorOf(const Linear& n, int64_t c) {
  for (int64_t d : CommonFactors(n, c)) {
    std::optional<QuotientParts> split = SplitBy(n, d);
    if (split && split->high.Range()) return split;
  }
  return std::nullopt;
}

UOp Plus(Rewriter& b, const Linear& sum, UOp u) {
  return sum.is_constant() && sum.constant() == 0 ? u : b.Make(Op::kAdd, {u, sum.Build(b)});
}

UOp DivideSum(Rewriter& b, const Match& m) {
  const int64_t c = m.k0();
  const DType dtype = m.root.dtype();
  const std::optional<Linear> n = Linear::Of(m.x());
  Linear quotient(dtype), rest(dtype);
  if (!n || !n->Range() || !n->DivideBy(c, Linear::Residues::kTruncated, &quotient, &rest))
    return {};
  const std::optional<Linear::Bounds> range = rest.Range();
  if (!range) return {};
  if (const std::optional<int64_t> t = range->Quotient(c)) {
    return quotient.AddConstant(*t) ? quotient.Build(b) : UOp();
  }
  if (const std::optional<QuotientParts> split = SplitByFactorOf(rest, c)) {
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
  if (!n || !n->Range() ||
      !DropInnerModulo(*n, c).DivideBy(c, Linear::Residues::kTruncated, &quotient, &rest))
    return {};
  const std::optional<Linear::Bounds> range = rest.Range();
  if (!range) return {};
  if (const std::optional<int64_t> t = range->Quotient(c)) {
    return rest.AddConstant(*t, -c) ? rest.Build(b) : UOp();
  }
  if (const std::optional<QuotientParts> split = SplitByFactorOf(rest, c)) {
    const UOp inner =
        b.Make(Op::kFloorMod, {split->high.Build(b), b.graph()->Const(dtype, c / split->d)});
    return Plus(b, split->low, b.Make(Op::kMul, {inner, b.graph()->Const(dtype, split->d)}));
  }
  return b.Make(Op::kFloorMod, {rest.Build(b), m.c0()});
}

// The formatter takes a binary & or * for the declaration of a reference or pointer.
// clang-format off
constexpr Rule kDivModRows[] = {
    rule((x / c0) / c1, x / (c0 * c1), when(kSigned, 0 < c0 && 0 < c1 && fits(c0 * c1))),
    rule((x % c0) / c1, (x / c1) % (c0 / c1), when(kSigned, 0 < c1 && 0 < c0 && c0 % c1 == 0)),
    rule((x % c0) % c1, x % c1, when(kSigned, 0 < c1 && 0 < c0 && c0 % c1 == 0)),
    rule(x / c0, DivideSum, when(kSigned, 0 < c0)),
    rule(x % c0, Modulo, when(kSigned, 0 < c0)),

    rule((x * c0) * y, (x * y) * c0, when(kSigned)),
    rule(x * c0, SimplifySum, when(kSigned)),
    rule(x + y, SimplifySum, when(kSigned)),
    rule(x - y, SimplifySum, when(kSigned)),
    rule(-x, SimplifySum, when(kSigned)),

    rule(x % c0 < c1, ModuloBelow, when(kSigned, 0 < c1 && c1 < c0)),
    rule(c0 < x % c1, ModuloAbove, when(kSigned, 0 < c0 + 1 && c0 < c1 - 1)),
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
    rule(x & y, Chain, when(kBools)),
    rule(x | y, Chain, when(kBools)),
};
// clang-format on

}  // namespace

constexpr RuleTable kDivMod{"divmod", kDivModRows};

}  // namespace telegrad
