#include "engine/lowering/position_form.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace telegrad {
namespace {

constexpr int kMaxTerms = 64;
constexpr int64_t kMaxCoefficient = int64_t{1} << 20;

// Arithmetic that could wrap is bounded by the type alone.
bool IsExact(UOp u) {
  const int64_t most = int64_t{1} << (std::min(Info(u.dtype()).bits, 56) - 2);
  return u.vmin() > -most && u.vmax() < most;
}

}  // namespace

bool PositionForm::Add(UOp root, int64_t times) {
  std::vector<std::pair<UOp, int64_t>> stack{{root, times}};
  for (int n = 0; !stack.empty(); ++n) {
    const auto [u, c] = stack.back();
    stack.pop_back();
    if (n > kMaxTerms || !IsInt(u.dtype()) || std::abs(c) > kMaxCoefficient) return false;
    if (!IsExact(u)) return false;
    if (u.is_const()) {
      constant += c * u.const_word();
    } else if (u.is(Op::kCast) && IsInt(u.src(0).dtype())) {
      if (!IsExact(u.src(0))) return false;
      stack.emplace_back(u.src(0), c);
    } else if (u.is(Op::kAdd) || u.is(Op::kSub)) {
      stack.emplace_back(u.src(0), c);
      stack.emplace_back(u.src(1), u.is(Op::kAdd) ? c : -c);
    } else if (u.is(Op::kNeg)) {
      stack.emplace_back(u.src(0), -c);
    } else if (u.is(Op::kMul) && u.src(1).is_const() &&
               std::abs(u.src(1).const_word()) < kMaxCoefficient) {
      stack.emplace_back(u.src(0), c * u.src(1).const_word());
    } else if ((terms[u.id()] += c) == 0) {
      terms.erase(u.id());
    }
  }
  return true;
}

UOp AsIndex(Graph& g, UOp u) {
  return u.dtype() == DType::kInt64 ? u : g.Make(Op::kCast, DType::kInt64, {u});
}

}  // namespace telegrad
