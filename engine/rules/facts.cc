#include "engine/rules/facts.h"

#include <algorithm>

namespace telegrad {
namespace {

constexpr size_t kMaxFacts = 32;

// y - x, if neither has wrapped.
std::optional<Linear> DifferenceOf(UOp x, UOp y) {
  if (!IsSigned(x.dtype())) return std::nullopt;
  const std::optional<Linear> a = Linear::Of(x);
  std::optional<Linear> d = Linear::Of(y);
  if (!a || !d || !a->Range() || !d->Range() || !d->AddScaled(*a, -1)) return std::nullopt;
  return d;
}

// k such that sum - k * part has none of part's atoms; 0 if there is no such k.
int64_t Multiple(const Linear& sum, const Linear& part) {
  int64_t times = 0;
  for (const auto& [atom, c] : part.terms()) {
    const auto it = std::ranges::find(sum.terms(), atom, &Linear::Term::atom);
    if (it == sum.terms().end() || it->coefficient % c != 0) return 0;
    const int64_t k = it->coefficient / c;
    if (times != 0 && k != times) return 0;
    times = k;
  }
  return times;
}

}  // namespace

void Facts::Add(UOp condition) {
  const bool less = condition.is(Op::kCmpLt);
  if (!less && !condition.is(Op::kCmpEq)) return;
  const std::optional<Linear> d = DifferenceOf(condition.src(0), condition.src(1));
  if (!d || d->is_constant() || facts_.size() == kMaxFacts) return;
  const int64_t g = d->GcdOfTerms();
  Linear form(d->dtype());
  for (const auto& [atom, c] : d->terms()) {
    if (!form.AddTerm(atom, c / g)) return;
  }
  // less: 1 <= g * form + constant.
  const std::optional<Linear::Bounds> known = form.Range();
  if (!known) return;
  Linear::Bounds bounds = *known;
  const Wide low = Wide{less ? 1 : 0} - d->constant();
  bounds.lo = std::max(bounds.lo, -FloorDivideWide(-low, g));
  if (!less) bounds.hi = std::min(bounds.hi, FloorDivideWide(-Wide{d->constant()}, g));
  facts_.push_back({std::move(form), bounds});
}

void Facts::AddAll(UOp conjunction) {
  std::vector<UOp> stack{conjunction};
  for (size_t steps = 0; !stack.empty() && steps < 4 * kMaxFacts; ++steps) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is(Op::kAnd)) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
    } else {
      Add(u);
    }
  }
  // Facts about sums say more than facts about one atom: use them first.
  std::ranges::stable_sort(facts_, std::greater<>{},
                           [](const Fact& f) { return f.form.terms().size(); });
}

std::optional<Linear::Bounds> Facts::Range(const Linear& sum) const {
  std::optional<Linear::Bounds> best = sum.Range();
  if (!best) return std::nullopt;
  const auto improve = [&](const Linear& rest, const Linear::Bounds& taken) {
    const std::optional<Linear::Bounds> range = rest.Range();
    if (!range) return;
    best->lo = std::max(best->lo, range->lo + taken.lo);
    best->hi = std::min(best->hi, range->hi + taken.hi);
  };
  // Each fact on its own, then as many together as there are.
  Linear rest = sum;
  Linear::Bounds taken{0, 0};
  for (const Fact& fact : facts_) {
    const int64_t k = Multiple(sum, fact.form);
    if (k == 0) continue;
    const Wide a = fact.bounds.lo * k, b = fact.bounds.hi * k;
    const Linear::Bounds bounds{std::min(a, b), std::max(a, b)};
    Linear alone = sum;
    if (alone.AddScaled(fact.form, -k)) improve(alone, bounds);
    if (Multiple(rest, fact.form) != k || !rest.AddScaled(fact.form, -k)) continue;
    taken = {taken.lo + bounds.lo, taken.hi + bounds.hi};
    improve(rest, taken);
  }
  return best;
}

std::optional<bool> Facts::Decide(UOp condition) const {
  if (facts_.empty() || !condition.is(Op::kCmpLt)) return std::nullopt;
  const std::optional<Linear> d = DifferenceOf(condition.src(0), condition.src(1));
  const std::optional<Linear::Bounds> range = d ? Range(*d) : std::nullopt;
  if (range && range->lo >= 1) return true;
  if (range && range->hi <= 0) return false;
  return std::nullopt;
}

UOp SimplifyUnder(Rewriter& b, UOp gate, UOp index) {
  std::optional<Linear> sum = Linear::Of(index);
  Facts facts;
  facts.AddAll(gate);
  if (!sum || facts.empty() || !IsSigned(index.dtype())) return index;
  const auto without = [&](const Linear::Term& term) -> std::optional<Linear> {
    const UOp u = term.atom;
    const bool divides = u.is(Op::kFloorDiv);
    if ((!divides && !u.is(Op::kFloorMod)) || !u.src(1).is_const()) return std::nullopt;
    const int64_t c = u.src(1).const_word();
    const std::optional<Linear> y = Linear::Of(u.src(0));
    if (c <= 0 || !y || !y->Range()) return std::nullopt;
    for (const auto residues : {Linear::Residues::kNearest, Linear::Residues::kTruncated}) {
      Linear quotient(u.dtype()), rest(u.dtype());
      if (!y->DivideBy(c, residues, &quotient, &rest)) continue;
      const std::optional<Linear::Bounds> range = facts.Range(rest);
      if (!range || FloorDivideWide(range->lo, c) != FloorDivideWide(range->hi, c)) continue;
      const auto t = static_cast<int64_t>(FloorDivideWide(range->lo, c));
      Linear out = *sum;
      if (quotient.AddConstant(t) && rest.AddConstant(t, -c) && out.AddTerm(u, -term.coefficient) &&
          out.AddScaled(divides ? quotient : rest, term.coefficient) && out.Range()) {
        return out;
      }
    }
    return std::nullopt;
  };
  for (size_t i = 0; i < sum->terms().size();) {
    if (std::optional<Linear> simpler = without(sum->terms()[i])) {
      sum = std::move(simpler);
      i = 0;
    } else {
      ++i;
    }
  }
  return sum->Build(b);
}

}  // namespace telegrad
