// A comparison is one of positions where `value` is -inf once it is replaced by true, or by false.
// As a form in the positions it is the least, or the greatest, key that is shown: of the rows that
// are computed together the one that sees most counts.
#include "engine/lowering/mask_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/position_form.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

// Whether it depends on nothing but `shared`, and on no memory.
bool IsShared(UOp u, std::span<const UOp> shared) {
  for (uint32_t id : PostOrder(u)) {
    const UOp s = u.graph()->at(id);
    if (s.is(Op::kLoad) || s.is(Op::kReduce)) return false;
    if (s.is(Op::kRange) && std::ranges::find(shared, s) == shared.end()) return false;
  }
  return true;
}

// What is shown where the comparison is false, if it `hides`, or true: `shown` >= 0. nullopt where
// it is not linear with 1 or -1 times the key.
std::optional<PositionForm> ShownBy(UOp compare, UOp key, bool hides) {
  // x < y is y - x - 1 >= 0, and what it hides is shown where x - y >= 0.
  PositionForm shown;
  const int64_t sign = hides ? 1 : -1;
  shown.constant = hides ? 0 : -1;
  if (!shown.Add(compare.src(0), sign) || !shown.Add(compare.src(1), -sign)) return std::nullopt;
  const auto at = shown.terms.find(key.id());
  if (at == shown.terms.end() || std::abs(at->second) != 1) return std::nullopt;
  return shown;
}

std::optional<MaskBound> BoundOf(Rewriter& b, const PositionForm& shown, UOp row, UOp key,
                                 absl::FunctionRef<bool(UOp)> is_shared) {
  Graph& g = *b.graph();
  int64_t most = shown.constant;
  UOp rest = g.Index(0);
  for (const auto& [id, c] : shown.terms) {
    const UOp u = g.at(id);
    if (u == key) continue;
    if (u == row) {
      most += c > 0 ? c * (SizeOf(row) - 1) : 0;
    } else if (!is_shared(u)) {
      return std::nullopt;
    } else {
      rest = b.Make(Op::kAdd, {rest, b.Make(Op::kMul, {AsIndex(g, u), g.Index(c)})});
    }
  }
  rest = b.Make(Op::kAdd, {rest, g.Index(most)});
  if (shown.terms.at(key.id()) == -1) {  // key <= rest
    return MaskBound{.first = {}, .end = b.Make(Op::kAdd, {rest, g.Index(1)})};
  }
  return MaskBound{.first = b.Make(Op::kMul, {rest, g.Index(-1)}), .end = {}};  // key >= -rest
}

}  // namespace

bool IsMinusInf(UOp u) {
  if (!u.valid() || !u.is_const() || !IsFloat(u.dtype())) return false;
  const double value = ScalarAsDouble(u.dtype(), u.const_word());
  return std::isinf(value) && value < 0;
}

std::vector<MaskBound> MaskBoundsOf(Rewriter& b, UOp value, UOp row, UOp key,
                                    absl::FunctionRef<bool(UOp)> is_shared) {
  Graph& g = *b.graph();
  std::vector<MaskBound> bounds;
  for (uint32_t id : PostOrder(value)) {
    const UOp compare = g.at(id);
    if (!compare.is(Op::kCmpLt)) continue;
    for (const bool hides : {false, true}) {
      const std::optional<PositionForm> shown = ShownBy(compare, key, hides);
      if (!shown) continue;
      const UOp other = Substitute(b, value, {{id, {g.ConstWord(DType::kBool, hides), {}}}});
      if (!IsMinusInf(other)) continue;
      if (const auto bound = BoundOf(b, *shown, row, key, is_shared)) bounds.push_back(*bound);
    }
  }
  return bounds;
}

UOp KeysShown(Rewriter& b, UOp value, UOp row, UOp key, std::span<const UOp> shared) {
  const auto is_shared = [&](UOp u) { return IsShared(u, shared); };
  for (const MaskBound& bound : MaskBoundsOf(b, value, row, key, is_shared)) {
    if (bound.end.valid()) return bound.end;
  }
  return {};
}

}  // namespace telegrad
