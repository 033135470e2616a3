#include "engine/lowering/layout.h"

#include <algorithm>
#include <bit>

namespace telegrad {
namespace {

UOp Exchanged(Rewriter& b, const Swizzle& s, UOp row, UOp column) {
  Graph& g = *b.graph();
  const auto make = [&](Op op, UOp x, int64_t y) { return b.Make(op, {x, g.Index(y)}); };
  const UOp chunk = make(Op::kFloorDiv, column, s.chunk);
  const UOp by = make(Op::kFloorMod, make(Op::kFloorDiv, row, s.rows), s.chunks);
  const UOp first = make(Op::kMul, b.Make(Op::kXor, {chunk, by}), s.chunk);
  return b.Make(Op::kAdd, {first, make(Op::kFloorMod, column, s.chunk)});
}

}  // namespace

std::optional<Swizzle> SwizzleOf(int64_t row, int64_t chunk, int64_t banks) {
  const int64_t chunks = row / chunk;
  if (row % chunk != 0 || !std::has_single_bit(static_cast<uint64_t>(chunks))) return std::nullopt;
  return Swizzle{.chunk = chunk,
                 .rows = std::max<int64_t>(1, banks / chunks),
                 .chunks = std::min(chunks, banks)};
}

int64_t Layout::elements() const {
  int64_t elements = 1;
  for (const LayoutAxis& axis : axes) elements *= axis.size + axis.gap;
  return elements;
}

UOp Layout::Step(Rewriter& b, UOp number, std::span<const UOp> place) const {
  const size_t n = place.size();
  const LayoutAxis& axis = axes[n - 1];
  const UOp around = b.Make(Op::kMul, {number, b.graph()->Index(axis.size + axis.gap)});
  const bool row = n == axes.size() && n > 1 && swizzle.chunk > 0;
  return b.Make(Op::kAdd,
                {around, row ? Exchanged(b, swizzle, place[n - 2], place[n - 1]) : place.back()});
}

UOp Layout::At(Rewriter& b, std::span<const UOp> place) const {
  UOp number = b.graph()->Index(0);
  for (size_t i = 1; i <= axes.size(); ++i) number = Step(b, number, place.first(i));
  return number;
}

RowOrder OrderOf(int64_t row_chunks, int64_t lanes, int64_t gap, int64_t banks) {
  const bool apart = row_chunks % 2 == 0 && row_chunks < banks && banks % row_chunks == 0;
  if (gap == lanes && apart) return {banks, row_chunks};
  if (2 * gap == lanes && 2 * row_chunks == banks) return {2 * banks, banks};
  return {};
}

UOp RowOrder::RowAt(Rewriter& b, UOp n) const {
  Graph& g = *b.graph();
  const auto make = [&](Op op, UOp x, int64_t y) { return b.Make(op, {x, g.Index(y)}); };
  const UOp among = make(Op::kFloorMod, n, group);
  const int64_t in_steps = group / step;
  const UOp far = make(Op::kMul, make(Op::kFloorMod, among, in_steps), step);
  const UOp near = make(Op::kFloorDiv, among, in_steps);
  const UOp first = make(Op::kMul, make(Op::kFloorDiv, n, group), group);
  return b.Make(Op::kAdd, {first, b.Make(Op::kAdd, {far, near})});
}

}  // namespace telegrad
