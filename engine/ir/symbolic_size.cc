#include "engine/ir/symbolic_size.h"

#include <algorithm>

#include "engine/base/checked.h"

namespace telegrad::internal {
namespace {

constexpr size_t kMaxFactors = 64;  // of a term
constexpr int kMaxWork = 512;       // nodes visited and terms made for one shape

absl::Status Overflows() { return InvalidArgument("a symbolic size overflows"); }

bool IsSplit(UOp u) { return u.is(Op::kAdd) || u.is(Op::kSub) || u.is(Op::kMul) || u.is(Op::kNeg); }

class Polynomials {
 public:
  // Without recursion: what a node needs is computed before it.
  absl::StatusOr<SymbolicSize> Of(UOp root) {
    std::vector<UOp> stack{root};
    while (!stack.empty()) {
      TG_RETURN_IF_ERROR(Work());
      const UOp u = stack.back();
      bool ready = true;
      for (int i = 0; IsSplit(u) && i < u.num_src(); ++i) {
        if (known_.contains(u.src(i).id())) continue;
        stack.push_back(u.src(i));
        ready = false;
      }
      if (!ready) continue;
      stack.pop_back();
      if (known_.contains(u.id())) continue;
      TG_ASSIGN_OR_RETURN(SymbolicSize size, Make(u));
      known_.emplace(u.id(), std::move(size));
    }
    return known_.at(root.id());
  }

  absl::StatusOr<SymbolicSize> Number(int64_t value) {
    SymbolicSize out;
    TG_RETURN_IF_ERROR(AddTerm({}, value, &out));
    return out;
  }

  absl::StatusOr<SymbolicSize> Product(const SymbolicSize& a, const SymbolicSize& b) {
    SymbolicSize out;
    for (const auto& [left, x] : a) {
      for (const auto& [right, y] : b) {
        std::vector<uint32_t> factors(left.size() + right.size());
        std::ranges::merge(left, right, factors.begin());
        if (factors.size() > kMaxFactors) {
          return InvalidArgument("the symbolic sizes have more than ", kMaxFactors, " factors");
        }
        int64_t coefficient;
        if (!CheckedMul(x, y, &coefficient)) return Overflows();
        TG_RETURN_IF_ERROR(AddTerm(std::move(factors), coefficient, &out));
      }
    }
    return out;
  }

 private:
  absl::StatusOr<SymbolicSize> Make(UOp u) {
    if (u.is_const()) return Number(u.const_word());
    if (!IsSplit(u)) return SymbolicSize{{{u.id()}, 1}};
    const SymbolicSize& x = known_.at(u.src(0).id());
    if (u.is(Op::kNeg)) return Sum({}, x, -1);
    const SymbolicSize& y = known_.at(u.src(1).id());
    if (u.is(Op::kMul)) return Product(x, y);
    return Sum(x, y, u.is(Op::kSub) ? -1 : 1);
  }

  absl::StatusOr<SymbolicSize> Sum(SymbolicSize a, const SymbolicSize& b, int64_t sign) {
    for (const auto& [factors, coefficient] : b) {
      int64_t signed_coefficient;
      if (!CheckedMul(coefficient, sign, &signed_coefficient)) return Overflows();
      TG_RETURN_IF_ERROR(AddTerm(factors, signed_coefficient, &a));
    }
    return a;
  }

  absl::Status AddTerm(std::vector<uint32_t> factors, int64_t coefficient, SymbolicSize* out) {
    TG_RETURN_IF_ERROR(Work());
    if (coefficient == 0) return absl::OkStatus();
    const auto [at, added] = out->try_emplace(std::move(factors), 0);
    if (!CheckedAdd(at->second, coefficient, &at->second)) return Overflows();
    if (at->second == 0) out->erase(at);
    return absl::OkStatus();
  }

  absl::Status Work() {
    if (++work_ <= kMaxWork) return absl::OkStatus();
    return InvalidArgument("the symbolic sizes take more than ", kMaxWork,
                           " steps to multiply; make them of fewer sums and products");
  }

  std::map<uint32_t, SymbolicSize> known_;  // by node
  int work_ = 0;
};

}  // namespace

absl::StatusOr<SymbolicSize> MultiplySizes(std::span<const SizeFactor> sizes) {
  Polynomials polynomials;
  SymbolicSize out{{{}, 1}};
  for (const SizeFactor& size : sizes) {
    TG_ASSIGN_OR_RETURN(const SymbolicSize factor, size.node.valid()
                                                       ? polynomials.Of(size.node)
                                                       : polynomials.Number(size.value));
    TG_ASSIGN_OR_RETURN(out, polynomials.Product(out, factor));
  }
  return out;
}

}  // namespace telegrad::internal
