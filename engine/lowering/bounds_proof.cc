// An index is read as a linear form: a constant plus atoms times coefficients, an atom being
// anything that is not a sum or a multiple. The gate is read as facts lo <= form <= hi. The index
// is bounded by taking whole multiples of facts out of it, then bounding what is left atom by atom.
// All arithmetic is checked; an overflow proves nothing.
#include "engine/lowering/bounds_proof.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/base/checked.h"

namespace telegrad {
namespace {

constexpr int kMaxTerms = 64;
constexpr int kMaxFacts = 64;

struct Bounds {
  int64_t lo, hi;
};

struct Form {
  std::map<uint32_t, int64_t> terms;  // atom -> coefficient, never 0
  int64_t constant = 0;
};

struct Fact {
  Form form;  // with constant 0
  Bounds bounds;
};

// sum += scale * u; false on overflow or when there are too many terms.
bool AddTo(UOp u, int64_t scale, Form* sum) {
  std::vector<std::pair<UOp, int64_t>> stack{{u, scale}};
  for (int steps = 0; !stack.empty(); ++steps) {
    if (steps > 4 * kMaxTerms || sum->terms.size() > kMaxTerms) return false;
    const auto [at, c] = stack.back();
    stack.pop_back();
    int64_t next;
    if (at.is_const()) {
      if (!CheckedMul(at.const_word(), c, &next) ||
          !CheckedAdd(sum->constant, next, &sum->constant)) {
        return false;
      }
    } else if (at.is(Op::kAdd)) {
      stack.emplace_back(at.src(0), c);
      stack.emplace_back(at.src(1), c);
    } else if (at.is(Op::kSub)) {
      if (!CheckedSub(0, c, &next)) return false;
      stack.emplace_back(at.src(0), c);
      stack.emplace_back(at.src(1), next);
    } else if (at.is(Op::kMul) && at.src(1).is_const()) {
      if (!CheckedMul(c, at.src(1).const_word(), &next)) return false;
      stack.emplace_back(at.src(0), next);
    } else {
      int64_t& coefficient = sum->terms[at.id()];
      if (!CheckedAdd(coefficient, c, &coefficient)) return false;
      if (coefficient == 0) sum->terms.erase(at.id());
    }
  }
  return true;
}

// The PARAM or BUFFER that an INDEX is into.
UOp Memory(UOp address) {
  UOp buffer = address.src(0);
  while (buffer.is(Op::kAfter)) buffer = buffer.src(0);
  return buffer;
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

class Prover {
 public:
  explicit Prover(UOp address) : graph_(*address.graph()) {
    if (address.num_src() == 3) ReadGate(address.src(2));
  }

  std::optional<Bounds> Bound(Form form) const {
    Bounds total{form.constant, form.constant};
    for (const Fact& fact : facts_) {
      const int64_t times = Multiple(form, fact.form);
      if (times == 0) continue;
      for (const auto& [atom, c] : fact.form.terms) form.terms[atom] -= c * times;
      std::erase_if(form.terms, [](const auto& t) { return t.second == 0; });
      if (!AddScaled(fact.bounds, times, &total)) return std::nullopt;
    }
    for (const auto& [atom, c] : form.terms) {
      const std::optional<Bounds> b = Atom(graph_.at(atom), 0);
      if (!b || !AddScaled(*b, c, &total)) return std::nullopt;
    }
    return total;
  }

 private:
  static bool AddScaled(Bounds b, int64_t c, Bounds* total) {
    int64_t x, y;
    if (!CheckedMul(b.lo, c, &x) || !CheckedMul(b.hi, c, &y)) return false;
    return CheckedAdd(total->lo, std::min(x, y), &total->lo) &&
           CheckedAdd(total->hi, std::max(x, y), &total->hi);
  }

  // k such that form - k * part has none of part's atoms; 0 if there is no such k.
  static int64_t Multiple(const Form& form, const Form& part) {
    int64_t times = 0;
    for (const auto& [atom, c] : part.terms) {
      const auto it = form.terms.find(atom);
      if (it == form.terms.end() || it->second % c != 0) return 0;
      const int64_t k = it->second / c;
      if (times != 0 && k != times) return 0;
      times = k;
    }
    return times;
  }

  void ReadGate(UOp gate) {
    std::vector<UOp> stack{gate};
    for (int steps = 0; !stack.empty() && steps < 4 * kMaxFacts; ++steps) {
      const UOp u = stack.back();
      stack.pop_back();
      if (u.is(Op::kAnd)) {
        stack.push_back(u.src(0));
        stack.push_back(u.src(1));
      } else if (u.is(Op::kCmpLt) && IsSigned(u.src(0).dtype())) {
        AddFact(u.src(0), u.src(1));
      }
    }
    // Facts about sums say more than facts about one atom: use them first.
    std::ranges::stable_sort(facts_, std::greater<>{},
                             [](const Fact& f) { return f.form.terms.size(); });
  }

  // small < large: large - small >= 1. Kept as two-sided bounds on the form, joined with what is
  // known.
  void AddFact(UOp small, UOp large) {
    Form form;
    if (facts_.size() >= kMaxFacts || !AddTo(large, 1, &form) || !AddTo(small, -1, &form)) return;
    int64_t lo;
    if (form.terms.empty() || !CheckedSub(1, form.constant, &lo)) return;
    form.constant = 0;
    for (Fact& f : facts_) {
      if (f.form.terms == form.terms) {
        f.bounds.lo = std::max(f.bounds.lo, lo);
        return;
      }
      if (Negated(f.form.terms) == form.terms && lo != INT64_MIN) {
        f.bounds.hi = std::min(f.bounds.hi, -lo);
        return;
      }
    }
    const std::optional<Bounds> known = BoundAtoms(form);
    const Bounds all = known.value_or(Bounds{INT64_MIN / 4, INT64_MAX / 4});
    facts_.push_back({std::move(form), {std::max(lo, all.lo), all.hi}});
  }

  static std::map<uint32_t, int64_t> Negated(std::map<uint32_t, int64_t> terms) {
    for (auto& [atom, c] : terms) c = -c;
    return terms;
  }

  std::optional<Bounds> BoundAtoms(const Form& form) const {
    Bounds total{form.constant, form.constant};
    for (const auto& [atom, c] : form.terms) {
      const std::optional<Bounds> b = Atom(graph_.at(atom), 0);
      if (!b || !AddScaled(*b, c, &total)) return std::nullopt;
    }
    return total;
  }

  // What the op alone says about a value. Division and remainder look one form deeper.
  std::optional<Bounds> Atom(UOp u, int depth) const {
    if (u.is(Op::kIota) && u.arg(0) > 0) return Bounds{0, u.arg(0) - 1};
    if (u.is(Op::kRange) && u.src(0).is_const() && u.src(0).const_word() > 0) {
      return Bounds{0, u.src(0).const_word() - 1};
    }
    if (depth > 8) return std::nullopt;
    const bool divides = u.is(Op::kFloorDiv) || u.is(Op::kFloorMod);
    if (divides && u.src(1).is_const() && u.src(1).const_word() > 0) {
      const int64_t c = u.src(1).const_word();
      const std::optional<Bounds> x = Inner(u.src(0), depth + 1);
      if (u.is(Op::kFloorMod)) {
        return x && x->lo >= 0 && x->hi < c ? *x : Bounds{0, c - 1};
      }
      if (!x) return std::nullopt;
      return Bounds{FloorDiv(x->lo, c), FloorDiv(x->hi, c)};
    }
    return std::nullopt;
  }

  std::optional<Bounds> Inner(UOp u, int depth) const {
    Form form;
    if (!AddTo(u, 1, &form)) return std::nullopt;
    Bounds total{form.constant, form.constant};
    for (const auto& [atom, c] : form.terms) {
      const std::optional<Bounds> b = Atom(graph_.at(atom), depth);
      if (!b || !AddScaled(*b, c, &total)) return std::nullopt;
    }
    return total;
  }

  const Graph& graph_;
  std::vector<Fact> facts_;
};

}  // namespace

bool ProveInside(UOp address) {
  const UOp index = address.src(1);
  const int64_t elements = NumElements(Memory(address).shape());
  if (address.num_src() == 3 && address.src(2).is_const() && address.src(2).const_word() == 0) {
    return true;  // never accessed
  }
  Form form;
  if (index.dtype() != DType::kInt64 || !AddTo(index, 1, &form)) return false;
  const std::optional<Bounds> b = Prover(address).Bound(std::move(form));
  return b && b->lo >= 0 && b->hi < elements;
}

BoundsStats& BoundsStats::operator+=(const BoundsStats& other) {
  proved += other.proved;
  gated += other.gated;
  data_dependent += other.data_dependent;
  return *this;
}

BoundsReport ProveBounds(const Graph& graph, const std::vector<uint32_t>& order) {
  BoundsReport report;
  NodeMap<bool> loaded(graph, false);  // whether the value is computed from a loaded one
  for (uint32_t id : order) {
    const UOp u = graph.at(id);
    loaded[id] = u.is(Op::kLoad) ||
                 std::ranges::any_of(u.src_ids(), [&](uint32_t s) { return loaded.at(s); });
    if (!u.is(Op::kIndex)) continue;
    const bool inside = ProveInside(u);
    if (!inside) report.unproved.push_back(u);
    if (!Memory(u).is(Op::kParam)) continue;
    BoundsStats& stats = report.stats;
    ++(loaded.at(u.src(1).id()) ? stats.data_dependent : inside ? stats.proved : stats.gated);
  }
  return report;
}

}  // namespace telegrad
