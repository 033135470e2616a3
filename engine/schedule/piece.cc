#include "engine/schedule/piece.h"

#include "engine/schedule/size_words.h"

namespace telegrad {
namespace {

// Of an axis of a SHRINK with a fixed offset.
struct Axis {
  bool inside = false;  // for all values of the variables
  bool whole = false;
};

Axis AxisOf(UOp view, size_t i) {
  const UOp x = view.src(0), from = x.dim(static_cast<int>(i)),
            size = view.dim(static_cast<int>(i));
  const int64_t offset = view.pair_offset(i), most = view.shape()[i];
  if (from.valid() && from == size) return {.inside = offset == 0, .whole = true};
  const int64_t least = from.valid() ? from.vmin() : x.shape()[i];
  return {.inside = offset + most <= least,
          .whole = !from.valid() && !size.valid() && most == x.shape()[i]};
}

}  // namespace

int64_t PieceOffset(UOp view) {
  const UOp x = view.src(0);
  if (view.is(Op::kReshape)) {
    if (!view.symbolic() && !x.symbolic()) return 0;
    const bool fits = NumElements(view.shape()) <= NumElements(x.shape());
    return fits && IsPrefix(x) && IsPrefix(view) ? 0 : -1;
  }
  if (!view.is(Op::kShrink)) return -1;
  int64_t offset = 0;
  bool pieces = false;  // an axis before this one has more than one
  bool whole = true;    // all axes after the first that has more than one are whole
  for (size_t i = 0; i < x.shape().size(); ++i) {
    if (view.pair_offset(i) < 0) return -1;  // computed by the run
    const Axis axis = AxisOf(view, i);
    if (!axis.inside) return -1;
    offset = offset * x.shape()[i] + view.pair_offset(i);
    if (pieces) whole &= axis.whole;
    pieces |= view.dim(static_cast<int>(i)).valid() || view.shape()[i] != 1;
  }
  return whole ? offset : -1;
}

}  // namespace telegrad
