#include "engine/schedule/piece.h"

namespace telegrad {

int64_t PieceOffset(UOp view) {
  if (view.is(Op::kReshape)) return 0;
  if (!view.is(Op::kShrink)) return -1;
  const ShapeView from = view.src(0).shape();
  const std::span<const int64_t> pairs = view.arg();
  int64_t offset = 0;
  bool pieces = false;  // an axis before this one has more than one
  bool whole = true;    // all axes after the first that has more than one are whole
  for (size_t i = 0; i < from.size(); ++i) {
    offset = offset * from[i] + pairs[2 * i];
    if (pieces) whole &= pairs[2 * i + 1] == from[i];
    pieces |= pairs[2 * i + 1] != 1;
  }
  return whole ? offset : -1;
}

}  // namespace telegrad
