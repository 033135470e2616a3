// The bound comes from comparisons that are linear in the positions: of the rows that are computed
// together the one that sees most. limit.h does the same for loops of processors.
#include "engine/lowering/mask_bounds.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/ir/scalar.h"
#include "engine/lowering/affine.h"
#include "engine/lowering/position_form.h"
#include "engine/lowering/ranges.h"
#include "engine/lowering/substitute.h"

namespace telegrad {
namespace {

bool IsHidden(UOp u) {
  if (!u.valid() || !u.is_const() || !IsFloat(u.dtype())) return false;
  const double value = ScalarAsDouble(u.dtype(), u.const_word());
  return std::isinf(value) && value < 0;
}

// Whether it depends on nothing but `shared`, and on no memory.
bool IsShared(UOp u, std::span<const UOp> shared) {
  for (uint32_t id : PostOrder(u)) {
    const UOp s = u.graph()->at(id);
    if (s.is(Op::kLoad) || s.is(Op::kReduce)) return false;
    if (s.is(Op::kRange) && std::ranges::find(shared, s) == shared.end()) return false;
  }
  return true;
}

// `shown` >= 0 is key < the result, for some row; invalid: it is another condition.
UOp BoundOf(Rewriter& b, const PositionForm& shown, UOp row, UOp key, std::span<const UOp> shared) {
  Graph& g = *b.graph();
  int64_t most = shown.constant;
  bool up_to = false;
  UOp rest = g.Index(0);
  for (const auto& [id, c] : shown.terms) {
    const UOp u = g.at(id);
    if (u == key) {
      up_to = c == -1;
    } else if (u == row) {
      most += c > 0 ? c * (SizeOf(row) - 1) : 0;
    } else if (!IsShared(u, shared)) {
      return {};
    } else {
      rest = b.Make(Op::kAdd, {rest, b.Make(Op::kMul, {AsIndex(g, u), g.Index(c)})});
    }
  }
  return up_to ? b.Make(Op::kAdd, {rest, g.Index(most + 1)}) : UOp();
}

}  // namespace

UOp KeysShown(Rewriter& b, UOp value, UOp row, UOp key, std::span<const UOp> shared) {
  Graph& g = *b.graph();
  for (uint32_t id : PostOrder(value)) {
    const UOp compare = g.at(id);
    if (!compare.is(Op::kCmpLt)) continue;
    for (const bool hides : {false, true}) {
      if (!IsHidden(Substitute(b, value, {{id, {g.ConstWord(DType::kBool, hides), {}}}}))) continue;
      // Shown where it is not what hides: x < y, that is y - x - 1 >= 0, or x - y >= 0.
      PositionForm shown;
      const int64_t sign = hides ? 1 : -1;
      shown.constant = hides ? 0 : -1;
      if (!shown.Add(compare.src(0), sign) || !shown.Add(compare.src(1), -sign)) continue;
      const UOp bound = BoundOf(b, shown, row, key, shared);
      if (bound.valid()) return bound;
    }
  }
  return {};
}

}  // namespace telegrad
