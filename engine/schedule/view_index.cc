#include "engine/schedule/view_index.h"

#include "engine/base/status.h"

namespace telegrad {

UOp IndexMath::Flat(ShapeView dims, const Indices& index) {
  UOp flat = g_.Index(0);
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    flat = Add(Mul(index[i], stride), flat);
    stride *= dims[i];
  }
  return flat;
}

// Axes of `from` and `to` are cut into groups of equal product, so that axes that a reshape leaves
// alone meet no division.
Indices IndexMath::ThroughReshape(ShapeView from, ShapeView to, const Indices& index) {
  Indices out(from.size(), g_.Index(0));
  size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const size_t i0 = i, j0 = j;
    int64_t a = i < from.size() ? from[i++] : 1;
    int64_t b = j < to.size() ? to[j++] : 1;
    while (a != b) {
      if (a < b) {
        a *= from[i++];
      } else {
        b *= to[j++];
      }
    }
    if (i - i0 == 1 && j - j0 == 1) {
      out[i0] = index[j0];
      continue;
    }
    UOp flat = g_.Index(0);
    int64_t stride = 1;
    for (size_t k = j; k-- > j0;) {
      flat = Add(Mul(index[k], stride), flat);
      stride *= to[k];
    }
    int64_t inner = 1;
    for (size_t k = i; k-- > i0;) {
      const UOp part = Div(flat, inner);
      out[k] = k == i0 ? part : Mod(part, from[k]);
      inner *= from[k];
    }
  }
  return out;
}

Indices IndexMath::ThroughView(UOp u, const Indices& index, UOp* valid) {
  const ShapeView from = u.src(0).shape();
  Indices out = index;
  switch (u.op()) {
    case Op::kReshape:
      return ThroughReshape(from, u.shape(), index);
    case Op::kExpand:
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] == 1) out[i] = g_.Index(0);
      }
      return out;
    case Op::kPermute:
      for (size_t i = 0; i < from.size(); ++i) out[u.arg(i)] = index[i];
      return out;
    case Op::kFlip:
      for (int64_t axis : u.arg()) {
        out[axis] = Add(Mul(index[axis], -1), g_.Index(from[axis] - 1));
      }
      return out;
    case Op::kPad:
      for (size_t i = 0; i < from.size(); ++i) {
        const int64_t offset = u.arg(2 * i);
        if (offset == 0 && u.arg(2 * i + 1) == from[i]) continue;
        out[i] = Add(index[i], g_.Index(-offset));
        *valid = And(*valid, InRange(out[i], from[i]));
        if (from[i] == 1) out[i] = g_.Index(0);  // the only one that is valid
      }
      return out;
    case Op::kShrink:
      for (size_t i = 0; i < from.size(); ++i) out[i] = Add(index[i], g_.Index(u.arg(2 * i)));
      return out;
    default:
      g_.Fail(Internal(Name(u.op()), " is not a movement op"));
      return out;
  }
}

}  // namespace telegrad
