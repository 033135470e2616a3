#include "engine/lowering/layout.h"

namespace telegrad {

int64_t Layout::elements() const {
  int64_t elements = 1;
  for (const LayoutAxis& axis : axes) elements *= axis.size + axis.gap;
  return elements;
}

UOp Layout::Step(Rewriter& b, UOp number, std::span<const UOp> place) const {
  const LayoutAxis& axis = axes[place.size() - 1];
  const UOp around = b.Make(Op::kMul, {number, b.graph()->Index(axis.size + axis.gap)});
  return b.Make(Op::kAdd, {around, place.back()});
}

UOp Layout::At(Rewriter& b, std::span<const UOp> place) const {
  UOp number = b.graph()->Index(0);
  for (size_t i = 1; i <= axes.size(); ++i) number = Step(b, number, place.first(i));
  return number;
}

}  // namespace telegrad
