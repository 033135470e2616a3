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

}  // namespace

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
  if (std::abs(mask.along) != 1) return std::nullopt;
  Graph& g = *b.graph();
  UOp rest = g.Index(0);
  for (const auto& [id, c] : mask.rest.terms) {
    const UOp u = g.at(id);
    if (!is_shared(u)) return std::nullopt;
    rest = b.Make(Op::kAdd, {rest, b.Make(Op::kMul, {AsIndex(g, u), g.Index(c)})});
  }
  const int64_t most = mask.rest.constant + (mask.across > 0 ? mask.across * (rows - 1) : 0);
  rest = b.Make(Op::kAdd, {rest, g.Index(most)});
  if (mask.along == -1) {  // key <= rest
    return MaskBound{.first = {}, .end = b.Make(Op::kAdd, {rest, g.Index(1)})};
  }
  return MaskBound{.first = b.Make(Op::kMul, {rest, g.Index(-1)}), .end = {}};  // key >= -rest
}

UOp KeysShown(Rewriter& b, UOp value, UOp row, UOp key, std::span<const UOp> shared) {
  const auto is_shared = [&](UOp u) { return IsShared(u, shared); };
  const int64_t rows = row.valid() ? SizeOf(row) : 1;
  for (uint32_t id : PostOrder(value)) {
    const UOp compare = value.graph()->at(id);
    if (!compare.is(Op::kCmpLt)) continue;
    for (const bool hides : {false, true}) {
      const auto mask = PositionMask::Of(compare, hides, key, row);
      if (!mask || mask->along != -1) continue;
      const UOp word = b.graph()->ConstWord(DType::kBool, hides);
      if (!IsMinusInf(Substitute(b, value, {{id, {word, {}}}}))) continue;
      if (const auto bound = BoundOf(b, *mask, rows, is_shared)) return bound->end;
    }
  }
  return {};
}

}  // namespace telegrad
