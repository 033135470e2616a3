#include "engine/schedule/access.h"

#include "engine/base/hash.h"

namespace telegrad {
namespace {

// Axes of `from` and `to` are cut into groups of equal product; within a group, an axis of `from`
// depends on those of `to` whose digits it shares. Axes of size 1 belong to no group.
Access AccessThroughReshape(ShapeView from, ShapeView to, const Access& access) {
  Access out;
  out.gate = access.gate;
  out.axes.resize(from.size());
  size_t i = 0, j = 0;
  const auto next = [](ShapeView shape, size_t* k) {
    while (*k < shape.size() && shape[*k] == 1) ++*k;
    return *k < shape.size() ? shape[(*k)++] : int64_t{1};
  };
  while (true) {
    while (i < from.size() && from[i] == 1) ++i;
    while (j < to.size() && to[j] == 1) ++j;
    if (i >= from.size() && j >= to.size()) return out;
    const size_t i0 = i, j0 = j;
    int64_t a = next(from, &i), b = next(to, &j);
    int from_axes = 1, to_axes = 1;
    while (a != b) {
      if (a < b ? i == from.size() : j == to.size()) return out;  // no elements, no positions
      if (a < b) {
        a *= next(from, &i);
        ++from_axes;
      } else {
        b *= next(to, &j);
        ++to_axes;
      }
    }
    if (from_axes == 1 && to_axes == 1) {
      out.axes[i - 1] = access.axes[j - 1];
      continue;
    }
    uint64_t flat = 0;
    for (size_t k = j0; k < j; ++k) {
      if (to[k] != 1) flat = Mix64(Mix64(flat, access.axes[k].hash), static_cast<uint64_t>(to[k]));
    }
    int64_t inner = 1;  // of axis k of `from`
    for (size_t k = i; k-- > i0;) {
      if (from[k] == 1) continue;
      AxisUse& axis = out.axes[k];
      axis.hash = Mix64(Mix64(flat, static_cast<uint64_t>(inner)), static_cast<uint64_t>(from[k]));
      int64_t digit = 1;  // the value of one step of axis m of `to`
      for (size_t m = j; m-- > j0;) {
        const int64_t end = digit * to[m];
        const bool above = digit >= inner * from[k] && digit % (inner * from[k]) == 0;
        const bool below = end <= inner && inner % end == 0;
        if (!above && !below) axis.ranges |= access.axes[m].ranges;
        digit = end;
      }
      inner *= from[k];
    }
  }
}

void Offset(AxisUse* axis, int64_t by) {
  if (by != 0) axis->hash = Mix64(axis->hash, static_cast<uint64_t>(by)) | 1;
}

}  // namespace

uint64_t Access::Hash() const {
  uint64_t h = gate;
  for (const AxisUse& axis : axes) h = Mix64(h, axis.hash);
  return h;
}

RangeSet Access::ranges() const {
  RangeSet all = 0;
  for (const AxisUse& axis : axes) all |= axis.ranges;
  return all;
}

Access AccessSource(UOp movement, const Access& access) {
  const ShapeView from = movement.src(0).shape();
  Access out = access;
  switch (movement.op()) {
    case Op::kReshape:
      return AccessThroughReshape(from, movement.shape(), access);
    case Op::kExpand:
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] == 1) out.axes[i] = {};
      }
      return out;
    case Op::kPermute:
      for (size_t i = 0; i < from.size(); ++i) out.axes[movement.axes()[i]] = access.axes[i];
      return out;
    case Op::kFlip:
      for (int64_t axis : movement.arg()) Offset(&out.axes[axis], -from[axis]);
      return out;
    case Op::kPad:
      for (size_t i = 0; i < from.size(); ++i) {
        const int64_t offset = movement.pair_offset(i);
        if (offset == 0 && movement.pair_size(i) == from[i]) continue;
        Offset(&out.axes[i], -offset);
        out.gate = Mix64(Mix64(out.gate, out.axes[i].hash), static_cast<uint64_t>(from[i])) | 1;
        if (from[i] == 1) out.axes[i] = {};
      }
      return out;
    default:  // SHRINK
      for (size_t i = 0; i < from.size(); ++i) {
        Offset(&out.axes[i], movement.pair_offset(i));
        if (from[i] == 1 || movement.pair_size(i) == 1) {
          // One element: its place is a constant.
          out.axes[i] = {
              from[i] == 1 ? 0 : Mix64(1, static_cast<uint64_t>(movement.pair_offset(i))), 0};
        }
      }
      return out;
  }
}

}  // namespace telegrad
