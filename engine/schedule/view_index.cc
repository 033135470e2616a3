#include "engine/schedule/view_index.h"

#include <algorithm>

#include "engine/base/status.h"

namespace telegrad {
namespace {

UOp Plus(Rewriter& b, UOp x, int64_t c) { return b.Make(Op::kAdd, {x, b.graph()->Index(c)}); }

// Axes of `from` and `to` are cut into groups of equal product, so that axes that a reshape leaves
// alone meet no division.
Indices ThroughReshape(Rewriter& b, ShapeView from, ShapeView to, std::span<const UOp> index) {
  Graph& g = *b.graph();
  Indices out(from.size(), g.Index(0));
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const size_t i0 = i, j0 = j;
    int64_t x = i < from.size() ? from[i++] : 1;
    int64_t y = j < to.size() ? to[j++] : 1;
    while (x != y) {
      if (x < y ? i == from.size() : j == to.size()) return out;  // no elements, no positions
      if (x < y) {
        x *= from[i++];
      } else {
        y *= to[j++];
      }
    }
    if (i - i0 == 1 && j - j0 == 1) {
      out[i0] = index[j0];
      continue;
    }
    const UOp flat = FlatIndex(b, to.subspan(j0, j - j0), index.subspan(j0, j - j0));
    int64_t inner = 1;
    for (size_t k = i; k-- > i0;) {
      const UOp part = b.Make(Op::kFloorDiv, {flat, g.Index(inner)});
      out[k] = k == i0 ? part : b.Make(Op::kFloorMod, {part, g.Index(from[k])});
      inner *= from[k];
    }
  }
  return out;
}

}  // namespace

UOp FlatIndex(Rewriter& b, ShapeView dims, std::span<const UOp> index) {
  Graph& g = *b.graph();
  UOp flat = g.Index(0);
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    flat = b.Make(Op::kAdd, {b.Make(Op::kMul, {index[i], g.Index(stride)}), flat});
    stride *= dims[i];
  }
  return flat;
}

UOp InRange(Rewriter& b, UOp x, int64_t n) {
  Graph& g = *b.graph();
  return b.Make(Op::kAnd,
                {b.Make(Op::kCmpLt, {g.Index(-1), x}), b.Make(Op::kCmpLt, {x, g.Index(n)})});
}

Indices SourceIndices(Rewriter& b, UOp view, std::span<const UOp> index, UOp* valid) {
  Graph& g = *b.graph();
  const ShapeView from = view.src(0).shape();
  Indices out(index.begin(), index.end());
  switch (view.op()) {
    case Op::kReshape:
      return ThroughReshape(b, from, view.shape(), index);
    case Op::kExpand:
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] == 1) out[i] = g.Index(0);
      }
      return out;
    case Op::kPermute:
      for (size_t i = 0; i < from.size(); ++i) out[view.axes()[i]] = index[i];
      return out;
    case Op::kFlip:
      for (int64_t axis : view.arg()) {
        out[axis] = Plus(b, b.Make(Op::kMul, {index[axis], g.Index(-1)}), from[axis] - 1);
      }
      return out;
    case Op::kPad:
      for (size_t i = 0; i < from.size(); ++i) {
        const int64_t offset = view.pair_offset(i);
        if (offset == 0 && view.pair_size(i) == from[i]) continue;
        out[i] = Plus(b, index[i], -offset);
        *valid = b.Make(Op::kAnd, {*valid, InRange(b, out[i], from[i])});
        if (from[i] == 1) out[i] = g.Index(0);  // the only one that is valid
      }
      return out;
    case Op::kShrink:
      for (size_t i = 0; i < from.size(); ++i) out[i] = Plus(b, index[i], view.pair_offset(i));
      return out;
    default:
      g.Fail(Internal(Name(view.op()), " is not a movement op"));
      return out;
  }
}

UOp Reshaped(Graph& g, UOp x, const Shape& dims) {
  while (x.is(Op::kReshape)) x = x.src(0);
  if (!x.valid() || std::ranges::equal(x.shape(), dims)) return x;
  return g.Make(Op::kReshape, {x}, dims);
}

}  // namespace telegrad
