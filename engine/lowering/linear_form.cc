#include "engine/lowering/linear_form.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/base/checked.h"

namespace telegrad {
namespace {

constexpr int kMaxSteps = 256;

bool Small(int64_t x) {
  return -LinearForm::kMaxCoefficient <= x && x <= LinearForm::kMaxCoefficient;
}

// *sum += a * b, if that stays small.
bool AddProduct(int64_t a, int64_t b, int64_t* sum) {
  int64_t product;
  return CheckedMul(a, b, &product) && CheckedAdd(*sum, product, sum) && Small(*sum);
}

}  // namespace

WideBounds operator+(const WideBounds& a, const WideBounds& b) {
  return {a.lo + b.lo, a.hi + b.hi};
}

WideBounds operator*(const WideBounds& a, int64_t factor) {
  // Without min and max, which would make an interval of no values one of some.
  const Int128 x = a.lo * factor, y = a.hi * factor;
  return factor < 0 ? WideBounds{y, x} : WideBounds{x, y};
}

WideBounds Intersect(const WideBounds& a, const WideBounds& b) {
  return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
}

WideBounds ValuesOf(DType dtype) {
  if (IsBool(dtype)) return {0, 1};
  const int bits = Info(dtype).bits;
  if (IsUnsigned(dtype)) return {0, (Int128{1} << bits) - 1};
  return {-(Int128{1} << (bits - 1)), (Int128{1} << (bits - 1)) - 1};
}

bool LinearForm::AddTerm(uint32_t atom, int64_t coefficient) {
  const auto at = terms.try_emplace(atom, 0).first;
  if (!AddProduct(coefficient, 1, &at->second)) return false;
  if (at->second == 0) terms.erase(at);
  return terms.size() <= kMaxTerms;
}

bool LinearForm::Add(UOp u, int64_t factor) {
  std::vector<std::pair<UOp, int64_t>> stack{{u, factor}};
  for (int steps = 0; !stack.empty(); ++steps) {
    if (steps == kMaxSteps) return false;
    const auto [at, c] = stack.back();
    stack.pop_back();
    if (!Small(c)) return false;
    if (at.is_const()) {
      if (!AddProduct(at.const_word(), c, &constant)) return false;
    } else if (at.is(Op::kAdd) || at.is(Op::kSub)) {
      stack.emplace_back(at.src(0), c);
      stack.emplace_back(at.src(1), at.is(Op::kAdd) ? c : -c);
    } else if (at.is(Op::kNeg)) {
      stack.emplace_back(at.src(0), -c);
    } else if (at.is(Op::kMul) && (at.src(0).is_const() || at.src(1).is_const())) {
      const int k = at.src(0).is_const() ? 0 : 1;
      int64_t product;
      if (!CheckedMul(c, at.src(k).const_word(), &product)) return false;
      stack.emplace_back(at.src(1 - k), product);
    } else if (!AddTerm(at.id(), c)) {
      return false;
    }
  }
  return true;
}

bool LinearForm::Add(const LinearForm& other, int64_t factor) {
  for (const auto& [atom, c] : other.terms) {
    int64_t product;
    if (!CheckedMul(c, factor, &product) || !AddTerm(atom, product)) return false;
  }
  return AddProduct(other.constant, factor, &constant);
}

int64_t LinearForm::Gcd() const {
  int64_t g = 0;
  for (const auto& [atom, c] : terms) g = std::gcd(g, c);
  return g;
}

int64_t LinearForm::MultipleOf(const LinearForm& part) const {
  int64_t times = 0;
  for (const auto& [atom, c] : part.terms) {
    const auto it = terms.find(atom);
    if (it == terms.end() || it->second % c != 0) return 0;
    const int64_t k = it->second / c;
    if (times != 0 && k != times) return 0;
    times = k;
  }
  return times;
}

}  // namespace telegrad
