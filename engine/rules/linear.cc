#include "engine/rules/linear.h"

#include <algorithm>
#include <numeric>

#include "engine/base/checked.h"
#include "engine/rules/order.h"

namespace telegrad {
namespace {

// Longer sums are a client's own arithmetic, not indices; they keep the form they have.
constexpr size_t kMaxTerms = 32;
constexpr int kMaxSteps = 160;

// Scalars by id, then shaped values by id, IOTA last.
bool Before(const Linear::Term& a, UOp b) {
  const int rank_a = OperandRank(a.atom), rank_b = OperandRank(b);
  if (rank_a != rank_b) return rank_a < rank_b;
  return a.atom.id() < b.id();
}

bool IsScalarTerm(const Linear::Term& term) { return term.atom.shape().empty(); }
bool IsPlainIota(const Linear::Term& term) {
  return term.atom.is(Op::kIota) && term.coefficient == 1;
}

}  // namespace

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return a % b < 0 ? q - 1 : q;
}

Wide FloorDivideWide(Wide a, Wide b) {
  const Wide q = a / b;
  return a % b < 0 ? q - 1 : q;
}

int64_t Gcd(int64_t a, int64_t b) {
  // Magnitudes are below 2^63: a coefficient of INT64_MIN is refused by AddTerm.
  return std::gcd(a, b);
}

std::optional<int64_t> Linear::Bounds::Quotient(int64_t divisor) const {
  const Wide q = FloorDivideWide(lo, divisor);
  if (q != FloorDivideWide(hi, divisor)) return std::nullopt;
  return static_cast<int64_t>(q);
}

bool Linear::AddConstant(int64_t value, int64_t factor) {
  int64_t product;
  return CheckedMul(value, factor, &product) && CheckedAdd(constant_, product, &constant_);
}

bool Linear::AddTerm(UOp atom, int64_t coefficient) {
  const auto at = std::lower_bound(terms_.begin(), terms_.end(), atom, Before);
  if (at != terms_.end() && at->atom == atom) {
    if (!CheckedAdd(at->coefficient, coefficient, &at->coefficient)) return false;
    if (at->coefficient == INT64_MIN) return false;
    if (at->coefficient == 0) terms_.erase(at);
    return true;
  }
  if (coefficient == 0) return true;
  if (coefficient == INT64_MIN || terms_.size() == kMaxTerms) return false;
  terms_.insert(at, {atom, coefficient});
  return true;
}

bool Linear::AddScaled(const Linear& other, int64_t factor) {
  for (const Term& term : other.terms_) {
    int64_t coefficient;
    if (!CheckedMul(term.coefficient, factor, &coefficient)) return false;
    if (!AddTerm(term.atom, coefficient)) return false;
  }
  return AddConstant(other.constant_, factor);
}

std::optional<Linear> Linear::Of(UOp u) {
  Linear out(u.dtype());
  std::vector<Term> stack{{u, 1}};
  for (int steps = 0; !stack.empty(); ++steps) {
    if (steps == kMaxSteps) return std::nullopt;
    const auto [node, factor] = stack.back();
    stack.pop_back();
    const Interval bounds = node.bounds();
    bool ok = true;
    if (bounds.constant()) {
      ok = out.AddConstant(bounds.lo, factor);
    } else if (node.is(Op::kAdd)) {
      stack.push_back({node.src(1), factor});
      stack.push_back({node.src(0), factor});
    } else if (node.is(Op::kSub)) {
      stack.push_back({node.src(1), -factor});
      stack.push_back({node.src(0), factor});
    } else if (node.is(Op::kNeg)) {
      stack.push_back({node.src(0), -factor});
    } else if (node.is(Op::kMul) && node.src(1).is_const()) {
      int64_t scaled;
      ok = CheckedMul(factor, node.src(1).const_word(), &scaled) && scaled != INT64_MIN;
      stack.push_back({node.src(0), scaled});
    } else {
      ok = out.AddTerm(node, factor);
    }
    if (!ok) return std::nullopt;
  }
  return out;
}

bool Linear::DivideBy(int64_t c, Residues residues, Linear* quotient, Linear* rest) const {
  const int64_t q = FloorDivide(constant_, c);
  bool ok = quotient->AddConstant(q) && rest->AddConstant(constant_ - q * c);
  for (const auto& [atom, coefficient] : terms_) {
    int64_t high = coefficient / c, low = coefficient % c;
    if (residues == Residues::kNearest && (low > c / 2 || low < -(c / 2))) {
      high += low > 0 ? 1 : -1;
      low += low > 0 ? -c : c;
    }
    ok = ok && quotient->AddTerm(atom, high) && rest->AddTerm(atom, low);
  }
  return ok;
}

int64_t Linear::GcdOfTerms() const {
  int64_t g = 0;
  for (const Term& term : terms_) g = Gcd(g, term.coefficient);
  return g;
}

std::optional<Linear::Bounds> Linear::Range() const {
  Bounds out{constant_, constant_};
  for (const auto& [atom, coefficient] : terms_) {
    const Interval bounds = atom.bounds();
    // At most kMaxTerms products below 2^126 / kMaxTerms: refuse larger ones, they are outside
    // anyway.
    const Wide limit = Wide{1} << 100;
    const Wide a = Wide{coefficient} * bounds.lo, b = Wide{coefficient} * bounds.hi;
    if (a > limit || a < -limit || b > limit || b < -limit) return std::nullopt;
    out.lo += std::min(a, b);
    out.hi += std::max(a, b);
  }
  const int bits = Info(dtype_).bits;
  const Wide top = Wide{1} << (bits - 1);
  if (!IsSigned(dtype_) || out.lo < -top || out.hi >= top) return std::nullopt;
  return out;
}

UOp Linear::Build(Rewriter& b) const {
  Graph& g = *b.graph();
  UOp sum;
  const auto add = [&](UOp part) { sum = sum.valid() ? b.Make(Op::kAdd, {sum, part}) : part; };
  bool constant_due = constant_ != 0 || terms_.empty();
  const auto add_constant = [&] {
    if (constant_due) add(g.Const(dtype_, constant_));
    constant_due = false;
  };
  // The constant ends the scalar part if there is one, else the sum, but for a plain IOTA.
  const bool scalars = !terms_.empty() && IsScalarTerm(terms_.front());
  for (const Term& term : terms_) {
    if ((scalars && !IsScalarTerm(term)) || IsPlainIota(term)) add_constant();
    add(term.coefficient == 1 ? term.atom
                              : b.Make(Op::kMul, {term.atom, g.Const(dtype_, term.coefficient)}));
  }
  add_constant();
  return sum;
}

}  // namespace telegrad
