#include "engine/ir/symbolic_size.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/base/checked.h"

namespace telegrad::internal {
namespace {

constexpr size_t kMaxFactors = 64;  // of a term
constexpr int kMaxWork = 4096;      // nodes visited and terms made for one shape

absl::Status Overflows() { return InvalidArgument("a symbolic size overflows"); }

bool IsSum(UOp u) { return u.is(Op::kAdd) || u.is(Op::kSub) || u.is(Op::kNeg); }

class Polynomials {
 public:
  // Without recursion: what a node needs is computed before it.
  absl::StatusOr<SymbolicSize> Of(UOp root) {
    std::vector<UOp> stack{root};
    while (!stack.empty()) {
      const UOp u = stack.back();
      const size_t before = stack.size();
      for (int i = 0; i < (u.is(Op::kMul) ? 2 : 1); ++i) {
        TG_ASSIGN_OR_RETURN(const std::vector<Multiple> parts,
                            PartsOf(u.is(Op::kMul) ? u.src(i) : u));
        for (const Multiple& part : parts) {
          if (part.u.is(Op::kMul) && !known_.contains(part.u.id())) stack.push_back(part.u);
        }
      }
      if (stack.size() > before) continue;
      stack.pop_back();
      if (known_.contains(u.id())) continue;
      TG_ASSIGN_OR_RETURN(SymbolicSize size, Make(u));
      known_.emplace(u.id(), std::move(size));
    }
    return known_.at(root.id());
  }

  absl::StatusOr<SymbolicSize> Number(int64_t value) {
    SymbolicSize out;
    TG_RETURN_IF_ERROR(AddTerm({}, value, 1, &out));
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
        TG_RETURN_IF_ERROR(AddTerm(std::move(factors), x, y, &out));
      }
    }
    return out;
  }

 private:
  struct Multiple {
    UOp u;  // no sum, difference or negation
    int64_t times;
  };

  // What a node is the sum of: itself, if it is none. A node's sources have lower ids than the
  // node, so that, from the highest id on, all uses of a node are known when it is its turn.
  absl::StatusOr<std::vector<Multiple>> PartsOf(UOp root) {
    std::vector<Multiple> out;
    std::map<uint32_t, Multiple, std::greater<>> open;
    const auto add = [&](UOp u, int64_t times) {
      int64_t& sum = open.try_emplace(u.id(), Multiple{u, 0}).first->second.times;
      return CheckedAdd(sum, times, &sum);
    };
    bool fits = add(root, 1);
    while (fits && !open.empty()) {
      TG_RETURN_IF_ERROR(Work());
      const auto [u, times] = open.begin()->second;
      open.erase(open.begin());
      if (!IsSum(u)) {
        out.push_back({u, times});
        continue;
      }
      int64_t minus;
      fits = CheckedSub(0, times, &minus) && add(u.src(0), u.is(Op::kNeg) ? minus : times) &&
             (u.is(Op::kNeg) || add(u.src(1), u.is(Op::kSub) ? minus : times));
    }
    if (!fits) return Overflows();
    return out;
  }

  absl::StatusOr<SymbolicSize> Make(UOp u) {
    if (!u.is(Op::kMul)) return Sum(u);
    TG_ASSIGN_OR_RETURN(const SymbolicSize x, Sum(u.src(0)));
    TG_ASSIGN_OR_RETURN(const SymbolicSize y, Sum(u.src(1)));
    return Product(x, y);
  }

  absl::StatusOr<SymbolicSize> Sum(UOp root) {
    TG_ASSIGN_OR_RETURN(const std::vector<Multiple> parts, PartsOf(root));
    SymbolicSize out;
    for (const auto& [u, times] : parts) {
      if (u.is(Op::kMul)) {
        for (const auto& [factors, coefficient] : known_.at(u.id())) {
          TG_RETURN_IF_ERROR(AddTerm(factors, coefficient, times, &out));
        }
      } else if (u.is_const()) {
        TG_RETURN_IF_ERROR(AddTerm({}, u.const_word(), times, &out));
      } else {
        TG_RETURN_IF_ERROR(AddTerm({u.id()}, 1, times, &out));
      }
    }
    return out;
  }

  absl::Status AddTerm(std::vector<uint32_t> factors, int64_t coefficient, int64_t times,
                       SymbolicSize* out) {
    TG_RETURN_IF_ERROR(Work());
    if (!CheckedMul(coefficient, times, &coefficient)) return Overflows();
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
