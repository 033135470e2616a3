// As a form in the positions it is the least, or the greatest, key that is shown: of the rows that
// are computed together the one that sees most counts.
#include "engine/lowering/mask_bounds.h"

#include <cmath>
#include <cstdlib>
#include <optional>

#include "engine/ir/scalar.h"
#include "engine/lowering/position_form.h"

namespace telegrad {

bool IsMinusInf(UOp u) {
  if (!u.valid() || !u.is_const() || !IsFloat(u.dtype())) return false;
  const double value = ScalarAsDouble(u.dtype(), u.const_word());
  return std::isinf(value) && value < 0;
}

std::optional<PositionMask> PositionMask::Of(UOp compare, bool hides, UOp key, UOp row) {
  // x < y is y - x - 1 >= 0, and what it hides is shown where x - y >= 0.
  PositionMask mask{.hides = hides, .rest = {}};
  const int64_t sign = hides ? 1 : -1;
  mask.rest.constant = hides ? 0 : -1;
  if (!mask.rest.Add(compare.src(0), sign) || !mask.rest.Add(compare.src(1), -sign)) {
    return std::nullopt;
  }
  const auto take = [&](UOp range) {
    const auto it = range.valid() ? mask.rest.terms.find(range.id()) : mask.rest.terms.end();
    if (it == mask.rest.terms.end()) return int64_t{0};
    const int64_t times = it->second;
    mask.rest.terms.erase(it);
    return times;
  };
  mask.along = take(key);
  mask.across = take(row);
  return mask;
}

std::optional<MaskBound> BoundOf(Rewriter& b, const PositionMask& mask, int64_t rows,
                                 absl::FunctionRef<bool(UOp)> is_shared) {
  if (mask.along == 0) return std::nullopt;
  Graph& g = *b.graph();
  UOp rest = g.Index(0);
  for (const auto& [id, c] : mask.rest.terms) {
    const UOp u = g.at(id);
    if (!is_shared(u)) return std::nullopt;
    rest = b.Make(Op::kAdd, {rest, b.Make(Op::kMul, {AsIndex(g, u), g.Index(c)})});
  }
  const int64_t most = mask.rest.constant + (mask.across > 0 ? mask.across * (rows - 1) : 0);
  rest = b.Make(Op::kAdd, {rest, g.Index(most)});
  const int64_t times = std::abs(mask.along);
  if (times != 1) rest = b.Make(Op::kFloorDiv, {rest, g.Index(times)});
  if (mask.along < 0) {  // key <= rest
    return MaskBound{.first = {}, .end = b.Make(Op::kAdd, {rest, g.Index(1)})};
  }
  return MaskBound{.first = b.Make(Op::kMul, {rest, g.Index(-1)}), .end = {}};  // key >= -rest
}

}  // namespace telegrad
