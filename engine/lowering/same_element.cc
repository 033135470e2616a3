#include "engine/lowering/same_element.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <span>

#include "engine/lowering/ranges.h"

namespace telegrad {
namespace {

constexpr int kMaxRounds = 16;
constexpr int kMaxFixedDepth = 8;
constexpr int kMaxDepthOfDigits = 8;  // of divisions of divisions
constexpr size_t kMaxDigits = 64;
constexpr size_t kMaxCases = 16;  // of places in rings
constexpr size_t kMaxSums = 8;    // that are joined, each times so much at most:
constexpr int64_t kMaxFactor = int64_t{1} << 20;

// The least multiple of g that is not below x.
Int128 MultipleFrom(Int128 x, Int128 g) {
  const Int128 q = x / g;
  return (q * g < x ? q + 1 : q) * g;
}

}  // namespace

SameElement::Digit SameElement::DigitOf(UOp u, int depth) {
  if (!IsDivision(u)) return {u};
  const UOp x = u.src(0);
  const int64_t c = u.src(1).const_word();
  // Of a digit, the quotient by what divides its number of values, and any rest.
  const Digit inner = depth < kMaxDepthOfDigits ? DigitOf(x, depth + 1) : Digit{x};
  if (u.is(Op::kFloorDiv)) {
    int64_t by;
    if (__builtin_mul_overflow(inner.by, c, &by)) return {u};
    if (inner.below == 0) return {inner.base, by, 0};
    if (inner.below % c == 0) return {inner.base, by, inner.below / c};
  } else {
    if (inner.below == 0 || inner.below % c == 0) return {inner.base, inner.by, c};
    if (inner.below <= c) return inner;
  }
  return {x, u.is(Op::kFloorDiv) ? c : 1, u.is(Op::kFloorDiv) ? 0 : c};
}

bool SameElement::IsFixed(UOp u, int depth) const {
  if (values_.uniform.at(u.id()) || same_.contains(u.id()) || HasKnownDigits(u)) return true;
  if (depth == kMaxFixedDepth || !values_.pure.at(u.id()) || u.num_src() == 0 || u.is(Op::kRange)) {
    return false;
  }
  return std::ranges::all_of(u.src_ids(), [&](uint32_t s) { return IsFixed(g_.at(s), depth + 1); });
}

bool SameElement::HasKnownDigits(UOp u) const {
  if (digits_.empty() || !IsDivision(u)) return false;
  const Digit d = DigitOf(u);
  return std::ranges::any_of(digits_, [&](const Digit& known) {
    if (known.base != d.base || d.by % known.by != 0) return false;
    int64_t values;
    return known.below == 0 ||
           (d.below != 0 && !__builtin_mul_overflow(d.by / known.by, d.below, &values) &&
            known.below % values == 0);
  });
}

bool SameElement::KeepsValue(UOp cast) {
  const UOp x = cast.src(0);
  if (!IsInt(x.dtype()) || !IsInt(cast.dtype())) return false;
  const WideBounds all = ValuesOf(cast.dtype());
  return Info(cast.dtype()).bits >= Info(x.dtype()).bits ||
         (a_.Value(x).within(all) && b_.Value(x).within(all));
}

void SameElement::MarkSame(UOp u) {
  while (same_.insert(u.id()).second) {
    bases_.push_back(u);
    if (u.is(Op::kXor)) exchanged_.push_back(u);
    const Digit digit = DigitOf(u);
    if (digit.base != u && digits_.size() < kMaxDigits) digits_.push_back(digit);
    if (!u.is(Op::kCast) || !KeepsValue(u)) return;
    u = u.src(0);
  }
}

// Of x ^ y, y follows from x. A digit and the one above it are one; one without a rest, of nothing
// less, is its base.
void SameElement::JoinDigits() {
  for (size_t i = 0; i < exchanged_.size(); ++i) {
    for (const int k : {0, 1}) {
      const UOp x = exchanged_[i];
      if (IsFixed(x.src(1 - k)) && !same_.contains(x.src(k).id())) MarkSame(x.src(k));
    }
  }
  for (size_t i = 0; i < digits_.size(); ++i) {
    for (size_t k = 0; k < digits_.size(); ++k) {
      const Digit low = digits_[i], high = digits_[k];
      if (low.base != high.base || low.below == 0 || high.by % low.by != 0) continue;
      if (high.by / low.by > low.below || low.below % (high.by / low.by) != 0) continue;
      int64_t below;
      if (__builtin_mul_overflow(high.by / low.by, high.below, &below)) continue;
      if (high.below != 0 && below <= low.below) continue;  // nothing new
      const Digit both{low.base, low.by, below};
      const bool known = std::ranges::any_of(digits_, [&](const Digit& d) {
        return d.base == both.base && d.by == both.by && d.below == both.below;
      });
      if (!known && digits_.size() < kMaxDigits) digits_.push_back(both);
    }
  }
  for (size_t i = 0; i < digits_.size(); ++i) {
    const Digit d = digits_[i];
    if (d.by != 1 || same_.contains(d.base.id())) continue;
    const auto inside = [&](GatedBounds& gated) {
      return gated.Value(d.base).within({0, Int128{d.below} - 1});
    };
    if (d.below == 0 || (inside(a_) && inside(b_))) MarkSame(d.base);
  }
}

std::vector<SameElement::Term> SameElement::TermsOf(const LinearForm& a,
                                                    const LinearForm& b) const {
  std::vector<Term> terms;
  for (const auto& [atom, c] : a.terms) {
    const auto it = b.terms.find(atom);
    const int64_t other = it == b.terms.end() ? 0 : it->second;
    const UOp u = g_.at(atom);
    if (IsFixed(u)) {
      if (c != other) terms.push_back({c - other, u, false, false, true});
    } else if (c == other) {
      terms.push_back({c, u});
    } else {
      terms.push_back({c, u, true, false});
      if (other != 0) terms.push_back({other, u, false, true});
    }
  }
  for (const auto& [atom, c] : b.terms) {
    if (a.terms.contains(atom)) continue;
    const UOp u = g_.at(atom);
    terms.push_back(IsFixed(u) ? Term{-c, u, false, false, true} : Term{c, u, false, true});
  }
  std::ranges::stable_sort(terms, std::greater<>{}, [](const Term& t) { return std::abs(t.c); });
  return terms;
}

WideBounds SameElement::BoundsOf(std::span<const Term> terms) {
  LinearForm a, b, fixed;
  for (const Term& t : terms) {
    if (t.in_a) a.terms[t.atom.id()] += t.c;
    if (t.in_b) b.terms[t.atom.id()] += t.c;
    if (t.fixed) fixed.terms[t.atom.id()] += t.c;
  }
  ++work_;
  if (fixed.terms.empty()) return a_.Integer(a) + b_.Integer(b) * -1;
  // What is known of either execution may be about what both have in common.
  LinearForm with_a = a, with_b = b;
  if (!with_a.Add(fixed, 1) || !with_b.Add(fixed, -1)) {
    return a_.Integer(a) + a_.Integer(fixed) + b_.Integer(b) * -1;
  }
  return Intersect(a_.Integer(with_a) + b_.Integer(b) * -1,
                   a_.Integer(a) + b_.Integer(with_b) * -1);
}

void SameElement::Cut(const std::vector<Term>& terms, Int128 rest, const WideBounds& near,
                      int bits) {
  std::vector<WideBounds> tails(terms.size() + 1, near);
  for (size_t i = 0; i < terms.size(); ++i) {
    tails[i] = BoundsOf(std::span(terms).subspan(i)) + near;
    if (tails[i].empty()) never_ = true;  // a gate is never true
    // The machine's addresses are equal modulo 2^bits only.
    const Int128 most = Int128{1} << bits;
    if (i == 0 && (tails[0].lo + rest <= -most || tails[0].hi + rest >= most)) return;
    if (i == 0 && (tails[0].lo + rest > 0 || tails[0].hi + rest < 0)) never_ = true;
    if (never_) return;
  }
  for (size_t begin = 0, i = 0; !never_ && i < terms.size(); ++i) {
    int64_t g = 0;
    for (size_t k = begin; k <= i; ++k) g = std::gcd(g, terms[k].c);
    const WideBounds tail = tails[i + 1] + WideBounds{rest, rest};
    const Int128 only = MultipleFrom(tail.lo, g);
    if (only > tail.hi) {
      never_ = true;
    } else if (only + g > tail.hi) {
      Take(std::span(terms).subspan(begin, i + 1 - begin), -only);
      rest -= only;
      begin = i + 1;
    }
  }
  if (terms.empty() && (rest < -near.hi || rest > -near.lo)) never_ = true;
}

void SameElement::Take(std::span<const Term> terms, Int128 sum) {
  const bool same = terms.size() == 1 && terms[0].in_a && terms[0].in_b && sum == 0;
  if (sums_ != nullptr && !same) sums_->push_back({{terms.begin(), terms.end()}, sum});
  const auto divides = [](const Term& t) { return IsDivision(t.atom); };
  if (known_.size() < kMaxSums && std::ranges::any_of(terms, divides)) {
    known_.push_back({{terms.begin(), terms.end()}, sum});
  }
  if (!WideBounds{sum, sum}.within(BoundsOf(terms))) {
    never_ = true;
  } else if (terms.size() > 1) {
    TakeOverlap(terms);
  } else if (terms[0].in_a && terms[0].in_b) {
    if (sum == 0) {
      MarkSame(terms[0].atom);
    } else {
      TakeOverlap(terms);
    }
  }
}

namespace {

// Of c * (n * (x / n) + x % n), in place of both: c * x. False where there is none.
bool JoinDivision(const Graph& graph, GatedBounds& bounds, LinearForm* form) {
  for (const auto& [quotient, c] : form->terms) {
    const UOp q = graph.at(quotient);
    if (!q.is(Op::kFloorDiv) || !IsDivision(q)) continue;
    for (const auto& [rest, k] : form->terms) {
      const UOp r = graph.at(rest);
      int64_t both;
      if (!r.is(Op::kFloorMod) || r.src(0) != q.src(0) || r.src(1) != q.src(1)) continue;
      if (__builtin_mul_overflow(k, q.src(1).const_word(), &both) || both != c) continue;
      const LinearForm x = FormOf(q.src(0));
      if (!bounds.Integer(x).within(ValuesOf(q.src(0).dtype()))) continue;
      LinearForm joined = *form;
      joined.terms.erase(quotient);
      joined.terms.erase(rest);
      if (!joined.Add(x, k)) continue;
      *form = std::move(joined);
      return true;
    }
  }
  return false;
}

}  // namespace

void SameElement::JoinSums() {
  // What is found is not joined again.
  const std::vector<Sum> known = known_;
  for (const Sum& x : known) {
    for (const Sum& y : known) {
      for (const Term& q : x.terms) {
        const auto rest = std::ranges::find_if(y.terms, [&](const Term& r) {
          return q.atom.is(Op::kFloorDiv) && r.atom.is(Op::kFloorMod) && IsDivision(q.atom) &&
                 r.atom.src(0) == q.atom.src(0) && r.atom.src(1) == q.atom.src(1) &&
                 (q.in_a ? r.in_a : r.in_b) && !q.fixed && !r.fixed;
        });
        if (never_ || rest == y.terms.end()) continue;
        int64_t n;
        if (__builtin_mul_overflow(rest->c, q.atom.src(1).const_word(), &n)) continue;
        const int64_t g = std::gcd(n, q.c);
        if (std::max(std::abs(n / g), std::abs(q.c / g)) > kMaxFactor) continue;
        LinearForm a, b;
        Int128 sum = 0;
        const auto add = [&](const Sum& one, int64_t by) {
          sum += one.sum * by;
          return std::ranges::all_of(one.terms, [&](const Term& t) {
            int64_t c = 0;
            return !t.fixed && !__builtin_mul_overflow(t.c, by, &c) &&
                   (!t.in_a || a.Add(t.atom, c)) && (!t.in_b || b.Add(t.atom, c));
          });
        };
        if (!add(x, n / g) || !add(y, q.c / g)) continue;
        bool joined = false;
        while (JoinDivision(g_, a_, &a)) joined = true;
        while (JoinDivision(g_, b_, &b)) joined = true;
        work_ += 4;
        if (joined) Cut(TermsOf(a, b), Int128{a.constant} - b.constant - sum, {0, 0}, 64);
      }
    }
  }
}

void SameElement::AssumeZero(const LinearForm& sum) {
  UOp left;
  for (const auto& [atom, c] : sum.terms) {
    if (IsFixed(g_.at(atom))) continue;
    if (left.valid() || std::abs(c) != 1) return;
    left = g_.at(atom);
  }
  if (left.valid()) MarkSame(left);
}

std::optional<SameElement::Tiles> SameElement::MovedBack(UOp u) {
  if (!u.is(Op::kMax)) return std::nullopt;
  for (const int k : {0, 1}) {
    if (!u.src(1 - k).is_const()) continue;
    const LinearForm form = FormOf(u.src(k));
    Tiles tiles{.size = form.Gcd(), .numbers = {}};
    if (form.constant != 0 || tiles.size == 0 || !AreDigits(form)) return std::nullopt;
    for (const auto& [atom, c] : form.terms) {
      if (c > 0) return std::nullopt;
      tiles.numbers.push_back(g_.at(atom));
    }
    const WideBounds in_a = a_.Integer(form), in_b = b_.Integer(form);
    if (in_a.hi > 0 || in_b.hi > 0) return std::nullopt;
    // Only the last tile moves, and not as far as to the one before.
    const Int128 begin = -Int128{u.src(1 - k).const_word()}, last = -std::min(in_a.lo, in_b.lo);
    if (!in_a.within(ValuesOf(u.dtype())) || !in_b.within(ValuesOf(u.dtype()))) return std::nullopt;
    if (last == 0 || begin >= last || begin <= last - tiles.size) return std::nullopt;
    return tiles;
  }
  return std::nullopt;
}

// Whether the sum says what each of its atoms is: each step is larger than all smaller ones.
bool SameElement::AreDigits(const LinearForm& form) {
  std::vector<std::pair<int64_t, uint32_t>> terms;
  for (const auto& [atom, c] : form.terms) terms.emplace_back(std::abs(c), atom);
  std::ranges::sort(terms);
  Int128 span = 0;  // of the smaller steps
  for (const auto& [c, atom] : terms) {
    if (c <= span) return false;
    const WideBounds in_a = a_.Value(g_.at(atom)), in_b = b_.Value(g_.at(atom));
    span += (std::max(in_a.hi, in_b.hi) - std::min(in_a.lo, in_b.lo)) * c;
  }
  return true;
}

// The ranges that tell threads apart, of those that `u` is computed from.
void SameElement::FindThreads(UOp u, absl::flat_hash_set<uint32_t>* threads) const {
  absl::flat_hash_set<uint32_t> seen;
  std::vector<UOp> stack{u};
  while (!stack.empty()) {
    const UOp at = stack.back();
    stack.pop_back();
    if (!seen.insert(at.id()).second) continue;
    if (at.is(Op::kRange)) {
      if (IsRangeOfThreads(at) || IsType(at, AxisType::kThread) || IsType(at, AxisType::kGroup)) {
        threads->insert(at.id());
      }
      continue;
    }
    for (const uint32_t s : at.src_ids()) stack.push_back(g_.at(s));
  }
}

// A thread has all places of a tile, or one of the threads that share the tiles has them: one whose
// number is that of a tile and of a place.
bool SameElement::ArePlaces(std::span<const UOp> places, std::span<const UOp> numbers) const {
  absl::flat_hash_set<uint32_t> of_tiles, of_places;
  for (const UOp u : numbers) FindThreads(u, &of_tiles);
  for (const UOp u : places) FindThreads(u, &of_places);
  return std::ranges::all_of(of_places, [&](uint32_t range) { return of_tiles.contains(range); });
}

// A tile's begin and places within tiles. These have room in a tile, and each has one number: only
// the last tile and the one before have the same positions.
void SameElement::TakeOverlap(std::span<const Term> terms) {
  std::vector<std::pair<Tiles, Term>> begins;  // of tiles, and of those within tiles
  std::vector<UOp> places;
  Int128 span = 0;  // of the smaller steps
  for (size_t i = terms.size(); i-- > 0;) {
    const Term& t = terms[i];
    if (const std::optional<Tiles> tiles = MovedBack(t.atom)) {
      if (!t.in_a || !t.in_b) return;
      begins.emplace_back(*tiles, t);
    } else if (t.in_a && t.in_b) {
      if (std::abs(t.c) <= span) return;
      span += SpanOf(t);
      places.push_back(t.atom);
    }
  }
  if (begins.empty()) return;
  std::ranges::sort(begins, {}, [](const auto& begin) { return begin.first.size; });
  const int64_t step = std::abs(begins[0].second.c);
  if (std::ranges::any_of(terms, [&](const Term& t) { return t.c % step != 0; })) return;
  for (const auto& [tiles, t] : begins) {
    if (std::abs(t.c) != step || span >= Int128{tiles.size} * step) return;
    span += SpanOf(t);
  }
  std::vector<UOp> numbers;
  for (const auto& [tiles, t] : begins) {
    numbers.insert(numbers.end(), tiles.numbers.begin(), tiles.numbers.end());
  }
  if (!ArePlaces(places, numbers)) return;
  overlapping_.insert(overlapping_.end(), numbers.begin(), numbers.end());
  overlapping_.insert(overlapping_.end(), places.begin(), places.end());
}

Int128 SameElement::SpanOf(const Term& t) {
  const WideBounds in_a = a_.Value(t.atom), in_b = b_.Value(t.atom);
  return (std::max(in_a.hi, in_b.hi) - std::min(in_a.lo, in_b.lo)) * std::abs(t.c);
}

std::optional<std::vector<SameElement::Part>> SameElement::PartsThatDiffer(const LinearForm& a,
                                                                           const LinearForm& b,
                                                                           const WideBounds& near,
                                                                           int bits) {
  std::vector<Sum> sums;
  sums_ = &sums;
  Cut(TermsOf(a, b), Int128{a.constant} - b.constant, near, bits);
  sums_ = nullptr;
  std::vector<Part> out;
  for (const Sum& sum : sums) {
    Part& part = out.emplace_back(Part{.difference = static_cast<int64_t>(sum.sum)});
    if (part.difference != sum.sum) return std::nullopt;
    for (const Term& t : sum.terms) {
      if (t.fixed) return std::nullopt;
      if (t.in_a) part.a.terms[t.atom.id()] = t.c;
      if (t.in_b) part.b.terms[t.atom.id()] = t.c;
    }
  }
  return out;
}

bool SameElement::AssumeRepeated() {
  if (overlapping_.empty()) return false;
  for (const UOp tiles : overlapping_) MarkSame(tiles);
  JoinDigits();
  return true;
}

std::optional<int64_t> SameElement::ValueIn(const Meeting& meeting, UOp u, bool of_b) {
  u = WithoutCasts(u);
  if (u.is(Op::kRange)) {
    for (const Meeting::Iteration& i : meeting.iterations) {
      if (i.range == u.id() && i.of_b == of_b) return i.number;
    }
    return std::nullopt;
  }
  if (!IsDivision(u)) return std::nullopt;
  const LinearForm form = FormOf(u.src(0));
  Int128 value = form.constant;
  for (const auto& [atom, c] : form.terms) {
    if (!WithoutCasts(g_.at(atom)).is(Op::kRange)) return std::nullopt;
    const std::optional<int64_t> number = ValueIn(meeting, g_.at(atom), of_b);
    if (!number) return std::nullopt;
    value += Int128{c} * *number;
  }
  if (value < 0 || !WideBounds{value, value}.within(ValuesOf(u.dtype()))) return std::nullopt;
  const Int128 c = u.src(1).const_word();
  return static_cast<int64_t>(u.is(Op::kFloorDiv) ? value / c : value % c);
}

void SameElement::PutValues(const Meeting& meeting, bool of_b, LinearForm* form) {
  for (const auto& [atom, c] : LinearForm(*form).terms) {
    const std::optional<int64_t> value = ValueIn(meeting, g_.at(atom), of_b);
    int64_t constant;
    if (!value || __builtin_mul_overflow(*value, c, &constant) ||
        __builtin_add_overflow(form->constant, constant, &constant) ||
        std::abs(constant) > LinearForm::kMaxCoefficient) {
      continue;
    }
    form->constant = constant;
    form->terms.erase(atom);
  }
}

void SameElement::PutSmall(GatedBounds& bounds, LinearForm* form) {
  for (const auto& [atom, c] : LinearForm(*form).terms) {
    const UOp u = g_.at(atom);
    if (!u.is(Op::kFloorMod) || !IsDivision(u)) continue;
    ++work_;
    if (!bounds.Value(u.src(0)).within({0, Int128{u.src(1).const_word()} - 1})) continue;
    LinearForm other = *form;
    other.terms.erase(atom);
    if (other.Add(u.src(0), c)) *form = std::move(other);
  }
}

std::optional<int64_t> SameElement::Difference(const Meeting& meeting, UOp a, UOp b) {
  const LinearForm x = FormOf(a), y = FormOf(b);
  if (x.terms != y.terms) return std::nullopt;
  Int128 sum = Int128{y.constant} - x.constant;
  for (const auto& [atom, c] : x.terms) {
    const auto shift =
        std::ranges::find(meeting.shifts, WithoutCasts(g_.at(atom)).id(), &Meeting::Shift::range);
    if (shift != meeting.shifts.end()) {
      sum += Int128{c} * shift->by;
    } else if (!IsFixed(g_.at(atom))) {
      return std::nullopt;
    }
  }
  work_ += 2;
  if (!a_.Integer(x).within(ValuesOf(a.dtype())) || !b_.Integer(y).within(ValuesOf(b.dtype())) ||
      sum > LinearForm::kMaxCoefficient || sum < -LinearForm::kMaxCoefficient) {
    return std::nullopt;
  }
  return static_cast<int64_t>(sum);
}

std::vector<std::pair<LinearForm, LinearForm>> SameElement::InIterations(const Meeting& meeting,
                                                                         LinearForm a,
                                                                         LinearForm b) {
  const std::pair given(a, b);
  PutSmall(a_, &a);
  PutSmall(b_, &b);
  PutValues(meeting, false, &a);
  PutValues(meeting, true, &b);
  std::vector<Int128> cases{a.constant};
  for (const auto& [atom, c] : LinearForm(a).terms) {
    const auto shift =
        std::ranges::find(meeting.shifts, WithoutCasts(g_.at(atom)).id(), &Meeting::Shift::range);
    const auto in_b = b.terms.find(atom);
    if (shift == meeting.shifts.end() || in_b == b.terms.end() || in_b->second != c) continue;
    cases[0] -= Int128{c} * shift->by;
    a.terms.erase(atom);
    b.terms.erase(atom);
  }
  for (const auto& [u, k] : LinearForm(a).terms) {
    const UOp x = g_.at(u);
    if (!x.is(Op::kFloorMod) || !IsDivision(x) || cases.size() * 2 > kMaxCases) continue;
    for (const auto& [v, l] : LinearForm(b).terms) {
      const UOp y = g_.at(v);
      if (k != l || !y.is(Op::kFloorMod) || y.src(1) != x.src(1)) continue;
      const std::optional<int64_t> d = Difference(meeting, x.src(0), y.src(0));
      if (!d) continue;
      const int64_t n = x.src(1).const_word(), ahead = (*d % n + n) % n;
      const size_t before = cases.size();
      for (size_t i = 0; i < before; ++i) {
        if (ahead != 0) cases.push_back(cases[i] + Int128{k} * (n - ahead));
        cases[i] -= Int128{k} * ahead;
      }
      a.terms.erase(u);
      b.terms.erase(v);
      break;
    }
  }
  std::vector<std::pair<LinearForm, LinearForm>> out;
  for (const Int128 c : cases) {
    if (c > LinearForm::kMaxCoefficient || c < -LinearForm::kMaxCoefficient) return {given};
    a.constant = static_cast<int64_t>(c);
    out.emplace_back(a, b);
  }
  return out;
}

void SameElement::Solve(const LinearForm& a, const LinearForm& b, const WideBounds& near,
                        int bits) {
  const Int128 rest = Int128{a.constant} - b.constant;
  never_ |= a_.never() || b_.never();
  for (int round = 0; !never_ && round < kMaxRounds; ++round) {
    const size_t before = same_.size();
    overlapping_.clear();
    const size_t known = known_.size();
    Cut(TermsOf(a, b), rest, near, bits);
    JoinDigits();
    if (!never_ && known_.size() > std::max<size_t>(known, 1)) {
      JoinSums();
      JoinDigits();
    }
    while (!bases_.empty() && !never_) {
      const UOp base = bases_.back();
      bases_.pop_back();
      if (base.is(Op::kRange) || IsDivision(base)) continue;
      if (const std::optional<Tiles> tiles = MovedBack(base)) {
        for (const UOp number : tiles->numbers) MarkSame(number);
        continue;
      }
      const LinearForm form = FormOf(base);
      if (form.terms.contains(base.id())) continue;  // no sum
      Cut(TermsOf(form, form), 0, {0, 0}, Info(base.dtype()).bits);
      JoinDigits();
    }
    if (same_.size() == before) return;
  }
}

}  // namespace telegrad
