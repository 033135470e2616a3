#include "engine/lowering/gated_bounds.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "engine/base/checked.h"

namespace telegrad {
namespace {

constexpr int kMaxDepth = 8;    // of divisions within divisions
constexpr int kMaxWork = 2048;  // forms bounded for one access
constexpr WideBounds kUnknown{-(Int128{1} << 120), Int128{1} << 120};

Int128 FloorDiv(Int128 a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }  // b > 0

WideBounds Point(Int128 x) { return {x, x}; }

WideBounds Quotient(const WideBounds& x, int64_t c) {
  return {FloorDiv(x.lo, c), FloorDiv(x.hi, c)};
}

WideBounds Remainder(const WideBounds& x, int64_t c) {
  const Int128 q = FloorDiv(x.lo, c);
  if (q != FloorDiv(x.hi, c)) return {0, c - 1};
  return {x.lo - q * c, x.hi - q * c};
}

// WHERE(x, y, false), which is x AND y.
bool IsConjunction(UOp u) {
  return u.is(Op::kWhere) && IsBool(u.dtype()) && u.src(2).is_const() && u.src(2).const_word() == 0;
}

}  // namespace

bool IsDivision(UOp u) {
  return (u.is(Op::kFloorDiv) || u.is(Op::kFloorMod)) && u.src(1).is_const() &&
         u.src(1).const_word() > 0;
}

LinearForm FormOf(UOp u) {
  LinearForm form;
  if (form.Add(u, 1)) return form;
  LinearForm atom;
  atom.terms[u.id()] = 1;
  return atom;
}

GatedBounds::GatedBounds(const Graph& graph, UOp gate, std::span<const UOp> loops) : graph_(graph) {
  if (gate.valid()) ReadGate(gate);
  for (const UOp range : loops) ReadOrder(range);
  BoundAgain();
  for (const UOp range : loops) ReadEnd(range, range.src(0), 1);
  if (gate.valid() || !loops.empty()) UseFacts();
}

WideBounds GatedBounds::Integer(const LinearForm& form) {
  WideBounds best = Plain(form);
  if (!thorough_) return best;
  for (const auto& [atom, c] : form.terms) {
    if (graph_.at(atom).is(Op::kMax)) best = Intersect(best, WithGreatest(form, graph_.at(atom)));
  }
  return best;
}

WideBounds GatedBounds::WithGreatest(const LinearForm& form, UOp greatest) {
  WideBounds of[2] = {kUnknown, kUnknown};
  const int64_t c = form.terms.at(greatest.id());
  for (const int k : {0, 1}) {
    LinearForm one = form;
    one.terms.erase(greatest.id());
    if (Exact(greatest.src(k)) && one.Add(greatest.src(k), c)) of[k] = Plain(one);
  }
  // c * max(x, y) is one of c * x and c * y: the greater one, or the less one where c is negative.
  if (c > 0) return {std::max(of[0].lo, of[1].lo), std::max(of[0].hi, of[1].hi)};
  return {std::min(of[0].lo, of[1].lo), std::min(of[0].hi, of[1].hi)};
}

WideBounds GatedBounds::Plain(const LinearForm& form) {
  if (++work_ > kMaxWork) return kUnknown;
  WideBounds best = Sum(form, 0);
  if (facts_.empty()) return best;
  best = Intersect(best, WithFacts(form, 0, kMaxFacts, true));
  if (!thorough_) return best;
  for (size_t i = 0; i < facts_.size(); ++i) {
    if (!facts_[i].exact) continue;
    for (const auto& [atom, c] : facts_[i].form.terms) {
      const auto it = form.terms.find(atom);
      if (it == form.terms.end() || it->second / c == 0) continue;
      best = Intersect(best, WithMultiple(form, i, it->second / c, 0, true));
    }
  }
  return best;
}

WideBounds GatedBounds::Bound(const LinearForm& form, DType dtype, int depth) {
  const WideBounds all = ValuesOf(dtype);
  if (++work_ > kMaxWork) return all;
  WideBounds best = all;
  const auto add = [&](const WideBounds& bounds) {
    if (bounds.within(all)) best = Intersect(best, bounds);
  };
  add(Sum(form, depth));
  if (!facts_.empty()) add(WithFacts(form, depth));
  if (thorough_) {
    for (size_t i = 0; i < facts_.size(); ++i) {
      for (const auto& [atom, c] : facts_[i].form.terms) {
        const auto it = form.terms.find(atom);
        if (it != form.terms.end()) add(WithMultiple(form, i, it->second / c, depth));
      }
    }
  }
  for (const auto& [atom, c] : form.terms) {
    if (IsDivision(graph_.at(atom))) add(WithQuotient(form, graph_.at(atom), depth));
  }
  for (const UOp u : remainders_) add(WithRemainder(form, u, depth));
  return best;
}

WideBounds GatedBounds::Sum(const LinearForm& form, int depth) {
  WideBounds total = Point(form.constant);
  for (const auto& [atom, c] : form.terms) total = total + Atom(graph_.at(atom), depth) * c;
  return total;
}

WideBounds GatedBounds::WithFacts(LinearForm form, int depth, size_t without, bool exact) {
  WideBounds total = Point(0);
  for (size_t i = 0; i < facts_.size(); ++i) {
    const Fact& fact = facts_[i];
    if (i == without || (exact && !fact.exact)) continue;
    const int64_t times = form.MultipleOf(fact.form);
    if (times == 0) continue;
    if (!form.Add(fact.form, -times)) return kUnknown;
    total = total + fact.bounds * times;
  }
  return total + Sum(form, depth);
}

WideBounds GatedBounds::WithMultiple(LinearForm form, size_t fact, int64_t times, int depth,
                                     bool exact) {
  if (++work_ > kMaxWork || !form.Add(facts_[fact].form, -times)) return kUnknown;
  return WithFacts(std::move(form), depth, fact, exact) + facts_[fact].bounds * times;
}

WideBounds GatedBounds::WithQuotient(LinearForm form, UOp division, int depth) {
  const UOp operand = division.src(0);
  const int64_t c = division.src(1).const_word();
  LinearForm y;
  if (depth == kMaxDepth || !y.Add(operand, 1)) return kUnknown;
  const int64_t k = form.MultipleOf(y);
  if (k == 0 || !form.Add(y, -k)) return kUnknown;
  const WideBounds range = Bound(y, operand.dtype(), depth + 1);
  Int128 quotients = Int128{k} * c, rests = k;
  for (const auto& [atom, a] : LinearForm(form).terms) {
    const UOp u = graph_.at(atom);
    if (!IsDivision(u) || u.src(0) != operand || u.src(1) != division.src(1)) continue;
    (u.is(Op::kFloorDiv) ? quotients : rests) += a;
    form.terms.erase(atom);
  }
  if (quotients > LinearForm::kMaxCoefficient || quotients < -LinearForm::kMaxCoefficient) {
    return kUnknown;
  }
  return WithFacts(std::move(form), depth) + Quotient(range, c) * static_cast<int64_t>(quotients) +
         Remainder(range, c) * static_cast<int64_t>(rests);
}

WideBounds GatedBounds::WithRemainder(const LinearForm& form, UOp remainder, int depth) {
  WideBounds best = kUnknown;
  LinearForm y;
  if (!y.Add(remainder.src(0), 1)) return best;
  int64_t before = 0;
  for (const auto& [atom, a] : y.terms) {
    const auto it = form.terms.find(atom);
    const int64_t k = it == form.terms.end() || it->second % a != 0 ? 0 : it->second / a;
    if (k == 0 || k == before) continue;
    before = k;
    best = Intersect(best, Divided(form, k, y, remainder, depth));
  }
  return best;
}

WideBounds GatedBounds::Divided(LinearForm form, int64_t k, const LinearForm& y, UOp remainder,
                                int depth) {
  const int64_t c = remainder.src(1).const_word();
  int64_t scaled;
  if (++work_ > kMaxWork || !CheckedMul(k, c, &scaled) || !form.Add(y, -k) ||
      !form.Add(remainder, k)) {
    return kUnknown;
  }
  const WideBounds all = ValuesOf(remainder.dtype());
  WideBounds range = all;
  for (const WideBounds& bounds : {Sum(y, depth), WithFacts(y, depth)}) {
    if (bounds.within(all)) range = Intersect(range, bounds);
  }
  const WideBounds best = WithFacts(form, depth) + Quotient(range, c) * scaled;
  const auto quotient = std::ranges::find_if(
      quotients_, [&](UOp q) { return std::ranges::equal(q.src_ids(), remainder.src_ids()); });
  if (quotient == quotients_.end() || !form.Add(*quotient, scaled)) return best;
  return Intersect(best, WithFacts(std::move(form), depth));
}

void GatedBounds::FindDivisions() {
  for (const Fact& fact : facts_) {
    for (const auto& [atom, c] : fact.form.terms) {
      const UOp u = graph_.at(atom);
      if (!IsDivision(u)) continue;
      std::vector<UOp>& known = u.is(Op::kFloorDiv) ? quotients_ : remainders_;
      if (std::ranges::find(known, u) == known.end()) known.push_back(u);
    }
  }
}

WideBounds GatedBounds::Atom(UOp u, int depth) {
  if (const auto it = atoms_.find(u.id()); it != atoms_.end()) return it->second;
  WideBounds bounds = ValuesOf(u.dtype());
  if (depth < kMaxDepth) {
    bounds = Intersect(bounds, ByOp(u, depth));
    atoms_.emplace(u.id(), bounds);
  }
  return bounds;
}

WideBounds GatedBounds::ByOp(UOp u, int depth) {
  const WideBounds all = ValuesOf(u.dtype());
  if (u.is(Op::kIota)) {
    const WideBounds lanes{0, std::max<int64_t>(NumElements(u.shape()), 1) - 1};
    return lanes.within(all) ? lanes : all;  // else it wraps
  }
  if (u.is(Op::kRange) && u.src(0).is_const()) {
    return {0, std::max<int64_t>(u.src(0).const_word(), 1) - 1};
  }
  if (u.is(Op::kRange)) {  // within the loop it is below an end that is not computed again
    return {0, std::max<Int128>(Value(u.src(0), depth + 1).hi, 1) - 1};
  }
  if (u.is(Op::kWhere)) {
    const WideBounds x = Value(u.src(1), depth + 1), y = Value(u.src(2), depth + 1);
    return {std::min(x.lo, y.lo), std::max(x.hi, y.hi)};
  }
  if (IsDivision(u)) {
    const WideBounds x = Value(u.src(0), depth + 1);
    const int64_t c = u.src(1).const_word();
    return u.is(Op::kFloorDiv) ? Quotient(x, c) : Remainder(x, c);
  }
  if (u.is(Op::kMax)) {
    const WideBounds x = Value(u.src(0), depth + 1), y = Value(u.src(1), depth + 1);
    return {std::max(x.lo, y.lo), std::max(x.hi, y.hi)};
  }
  if (u.is(Op::kXor)) {  // of two that are not negative: no bit above those of both
    const WideBounds x = Value(u.src(0), depth + 1), y = Value(u.src(1), depth + 1);
    if (x.lo < 0 || y.lo < 0 || x.empty() || y.empty()) return all;
    const auto highest = static_cast<uint64_t>(std::max(x.hi, y.hi));  // of at most 64 bits
    return {0, (Int128{1} << std::bit_width(highest)) - 1};
  }
  if (u.is(Op::kCast) && !IsFloat(u.src(0).dtype()) && !IsBool(u.dtype())) {
    const WideBounds x = Value(u.src(0), depth + 1);
    return x.within(all) ? x : all;  // else it wraps
  }
  return all;
}

void GatedBounds::ReadGate(UOp gate) {
  std::vector<UOp> stack{gate};
  for (size_t steps = 0; !stack.empty() && steps < 4 * kMaxFacts; ++steps) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is(Op::kAnd)) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
    } else if (IsConjunction(u)) {
      stack.push_back(u.src(0));
      stack.push_back(u.src(1));
    } else if (u.is_const()) {
      never_ |= u.const_word() == 0;
    } else if (u.num_src() == 2 && IsSigned(u.src(0).dtype())) {
      if (u.is(Op::kCmpLt)) AddFact(u.src(0), u.src(1), {1, Int128{1} << 64});
      if (u.is(Op::kCmpEq)) AddFact(u.src(0), u.src(1), Point(0));
    }
  }
}

void GatedBounds::ReadEnd(UOp range, UOp u, int sign, int depth) {
  if (depth == kMaxDepth) return;
  if (sign > 0 && u.is(Op::kWhere)) {
    if (Value(u.src(2)).hi > 0) return;
    ReadGate(u.src(0));
    ReadEnd(range, u.src(1), sign, depth + 1);
  } else if (u.is(Op::kMax)) {
    for (const int k : {0, 1}) {
      if (sign < 0 || Value(u.src(1 - k)).hi <= 0) ReadEnd(range, u.src(k), sign, depth + 1);
    }
  } else if (u.is(Op::kMul) && (u.src(0).is_const() || u.src(1).is_const()) && Exact(u)) {
    const int k = u.src(0).is_const() ? 0 : 1;
    if (u.src(k).const_word() == -1) return ReadEnd(range, u.src(1 - k), -sign, depth + 1);
    AddBelow(range, u, sign);
  } else {
    AddBelow(range, u, sign);
  }
}

void GatedBounds::ReadOrder(UOp u) {
  absl::flat_hash_set<uint32_t> seen;
  std::vector<std::pair<UOp, bool>> stack{{u, false}};
  while (!stack.empty()) {
    const auto [at, ready] = stack.back();
    stack.pop_back();
    if (ready) {
      order_.push_back(at);
      continue;
    }
    if (at.is_const() || (!Is(at.op(), kAlu) && !at.is(Op::kRange)) || !IsInt(at.dtype())) continue;
    if (!seen.insert(at.id()).second) continue;
    stack.emplace_back(at, true);
    for (const uint32_t s : at.src_ids()) stack.emplace_back(graph_.at(s), false);
  }
}

void GatedBounds::BoundAgain() {
  atoms_.clear();
  const bool thorough = std::exchange(thorough_, false);
  int work = work_;
  for (const UOp u : order_) {
    Restart();
    Atom(u, 0);
    work += work_;
  }
  work_ = work;
  thorough_ = thorough;
}

void GatedBounds::UseFacts() {
  // Facts about sums say more than facts about one atom: use them first.
  std::ranges::stable_sort(facts_, std::greater<>{},
                           [](const Fact& f) { return f.form.terms.size(); });
  BoundAgain();
  for (size_t i = facts_.size(); i-- > 0;) {
    Fact& fact = facts_[i];
    if (fact.exact) fact.bounds = Intersect(fact.bounds, WithFacts(fact.form, 0, i, true));
    never_ |= fact.bounds.empty();
  }
  FindDivisions();
}

bool GatedBounds::Exact(UOp u) {
  LinearForm form;
  return form.Add(u, 1) && Sum(form, 0).within(ValuesOf(u.dtype()));
}

void GatedBounds::AddFact(UOp x, UOp y, const WideBounds& given) {
  if (Exact(x) && Exact(y)) {
    AddExact(x, y, given);
  } else if (x.is_const()) {
    AddMachine(y, given + Point(x.const_word()));
  } else if (y.is_const()) {
    AddMachine(x, given * -1 + Point(y.const_word()));
  }
}

void GatedBounds::AddBelow(UOp range, UOp u, int sign) {
  if (!u.is_const() && Exact(u)) AddExact(range, u, {1, Int128{1} << 64}, sign);
}

void GatedBounds::AddExact(UOp x, UOp y, const WideBounds& given, int sign) {
  Fact fact;
  if (!fact.form.Add(y, sign) || !fact.form.Add(x, -1)) return;
  fact.bounds = given + Point(-Int128{fact.form.constant});
  fact.form.constant = 0;
  const int64_t g = fact.form.Gcd();
  if (g == 0) {
    never_ |= !Point(0).within(fact.bounds);
    return;
  }
  fact.bounds = Intersect(fact.bounds, Sum(fact.form, 0));
  for (auto& [atom, c] : fact.form.terms) c /= g;
  fact.bounds = {-FloorDiv(-fact.bounds.lo, g), FloorDiv(fact.bounds.hi, g)};
  if (fact.form.terms.begin()->second < 0) {  // one sign, so that equal forms meet
    for (auto& [atom, c] : fact.form.terms) c = -c;
    fact.bounds = fact.bounds * -1;
  }
  Keep(std::move(fact));
}

void GatedBounds::AddMachine(UOp u, const WideBounds& value) {
  Fact fact{.exact = false};
  fact.form = FormOf(u);
  fact.offset = std::exchange(fact.form.constant, 0);
  fact.bounds = Intersect(ValuesOf(u.dtype()), value) + Point(-Int128{fact.offset});
  Keep(std::move(fact));
}

void GatedBounds::Keep(Fact fact) {
  const auto same = std::ranges::find_if(facts_, [&](const Fact& f) {
    return f.exact == fact.exact && f.offset == fact.offset && f.form.terms == fact.form.terms;
  });
  if (same != facts_.end()) {
    same->bounds = Intersect(same->bounds, fact.bounds);
    never_ |= same->bounds.empty();
  } else if (facts_.size() < kMaxFacts) {
    never_ |= fact.bounds.empty();
    facts_.push_back(std::move(fact));
  }
}

}  // namespace telegrad
