// One axis at a time: the value seen as [before, axis, after]. Where a fixed window and a mask say
// what is meant, the index stays one that can be vectorized; else the axis is gathered by an index
// computed from the sizes.
#include "engine/rewrite/padded.h"

#include <algorithm>

namespace telegrad {
namespace {

int64_t ProductOf(std::span<const RunDim> dims) {
  int64_t out = 1;
  for (const RunDim& d : dims) out *= d.bound;
  return out;
}

UOp Size(Graph* g, const RunDim& d) { return d.fixed() ? g->Index(d.bound) : d.size; }
UOp Add(Graph* g, UOp x, UOp y) { return g->Make(Op::kAdd, {x, y}); }
UOp Sub(Graph* g, UOp x, UOp y) { return g->Make(Op::kSub, {x, y}); }
UOp Mul(Graph* g, UOp x, UOp y) { return g->Make(Op::kMul, {x, y}); }
UOp Div(Graph* g, UOp x, UOp y) { return g->Make(Op::kFloorDiv, {x, y}); }
UOp Mod(Graph* g, UOp x, UOp y) { return g->Make(Op::kFloorMod, {x, y}); }

UOp Iota(Graph* g, int64_t n) {
  const int64_t dims[] = {n};
  return g->Make(Op::kIota, DType::kInt64, std::span<const UOp>{}, dims);
}

UOp Fixed(Graph* g, Op op, UOp x, std::vector<int64_t> arg) { return g->Make(op, {x}, arg); }

// A value as [before, axis, after].
struct Slab {
  UOp value;
  int64_t before, axis, after;
};

Slab SlabOf(Graph* g, UOp x, std::span<const int64_t> bounds, size_t axis) {
  Slab s{x, 1, bounds[axis], 1};
  for (size_t i = 0; i < axis; ++i) s.before *= bounds[i];
  for (size_t i = axis + 1; i < bounds.size(); ++i) s.after *= bounds[i];
  s.value = Fixed(g, Op::kReshape, x, {s.before, s.axis, s.after});
  return s;
}

// `x` where the bool vector `keep` over the axis holds, else the word.
void Mask(Graph* g, Slab* s, UOp keep, int64_t word) {
  UOp all = Fixed(g, Op::kReshape, keep, {1, s->axis, 1});
  all = Fixed(g, Op::kExpand, all, {s->before, s->axis, s->after});
  s->value = g->Make(Op::kWhere, {all, s->value, g->ConstWord(s->value.dtype(), word)});
}

// The elements of the axis that the i64 vector `index` names; zeros where there is none.
void Gather(Graph* g, Slab* s, UOp index) {
  s->axis = index.shape()[0];
  const UOp rows = Fixed(g, Op::kPermute, s->value, {1, 0, 2});
  s->value = Fixed(g, Op::kPermute, g->Make(Op::kGather, {rows, index}), {1, 0, 2});
}

// Element i of the result is element i + shift of the axis; zeros outside of it.
void Window(Graph* g, Slab* s, int64_t shift, int64_t size) {
  const int64_t begin = std::clamp<int64_t>(shift, 0, s->axis);
  const int64_t before = std::clamp<int64_t>(-shift, 0, size);
  const int64_t length = std::min(s->axis - begin, size - before);
  if (begin != 0 || length != s->axis) {
    s->value = Fixed(g, Op::kShrink, s->value, {0, s->before, begin, length, 0, s->after});
  }
  if (before != 0 || length != size) {
    s->value = Fixed(g, Op::kPad, s->value, {0, s->before, before, size, 0, s->after});
  }
  s->axis = size;
}

// Along one axis, element i of the result is element i + shift of `from`, where there is one.
void Shift(Graph* g, Slab* s, const RunDim& from, UOp shift, int64_t size) {
  if (shift.is_const()) {
    Window(g, s, shift.const_word(), size);
    if (from.fixed()) return;
    const UOp end = Sub(g, from.size, shift);
    return Mask(g, s, g->Make(Op::kCmpLt, {Iota(g, size), end}), 0);
  }
  UOp index = Add(g, Iota(g, size), shift);
  if (!from.fixed()) {
    const UOp inside = g->Make(Op::kCmpLt, {index, from.size});
    index = g->Make(Op::kWhere, {inside, index, g->Index(-1)});
  }
  Gather(g, s, index);
}

Padded Move(Graph* g, const Padded& x, std::span<const RunDim> offsets, std::vector<RunDim> sizes,
            bool forward) {
  std::vector<int64_t> bounds = BoundsOf(x.dims);
  UOp value = x.value;
  for (size_t a = 0; a < sizes.size(); ++a) {
    UOp shift = Size(g, offsets[a]);
    if (forward)
      shift = shift.is_const() ? g->Index(-shift.const_word()) : Sub(g, g->Index(0), shift);
    if (shift == g->Index(0) && sizes[a] == x.dims[a]) continue;
    Slab s = SlabOf(g, value, bounds, a);
    Shift(g, &s, x.dims[a], shift, sizes[a].bound);
    bounds[a] = sizes[a].bound;
    value = Fixed(g, Op::kReshape, s.value, bounds);
  }
  return {value, std::move(sizes)};
}

// --- reshape ---

// A product of sizes: equal products are equal numbers of elements.
struct Count {
  int64_t constant = 1;
  std::vector<uint32_t> factors;
  friend bool operator==(const Count&, const Count&) = default;
};

Count Times(Count count, const RunDim& dim) {
  if (dim.fixed()) {
    count.constant *= dim.bound;
    return count;
  }
  std::vector<UOp> stack{dim.size};
  while (!stack.empty()) {
    const UOp u = stack.back();
    stack.pop_back();
    if (u.is_const()) {
      count.constant *= u.const_word();
    } else if (u.is(Op::kMul)) {
      stack.insert(stack.end(), {u.src(0), u.src(1)});
    } else {
      count.factors.push_back(u.id());
    }
  }
  std::ranges::sort(count.factors);
  return count;
}

// Row-major order is that of the bounds where no size but the outermost is the run's.
bool InOrder(std::span<const RunDim> dims) {
  bool outermost = true;
  for (const RunDim& d : dims) {
    if (d.fixed() && d.bound == 1) continue;
    if (!d.fixed() && !outermost) return false;
    outermost = false;
  }
  return true;
}

// For each element of `to`, by its place among the bounds, the place of the same among those of
// `from`.
UOp Places(Graph* g, std::span<const RunDim> from, std::span<const RunDim> to) {
  const UOp place = Iota(g, ProductOf(to));
  UOp number = g->Index(0), stride = g->Index(1);
  int64_t among = 1;
  for (size_t k = to.size(); k-- > 0;) {
    const UOp at = Mod(g, Div(g, place, g->Index(among)), g->Index(to[k].bound));
    number = Add(g, number, Mul(g, at, stride));
    stride = Mul(g, stride, Size(g, to[k]));
    among *= to[k].bound;
  }
  UOp out = g->Index(0);
  among = 1;
  for (size_t k = from.size(); k-- > 0;) {
    const UOp size = Size(g, from[k]);
    out = Add(g, out, Mul(g, k == 0 ? number : Mod(g, number, size), g->Index(among)));
    number = Div(g, number, size);
    among *= from[k].bound;
  }
  return out;
}

}  // namespace

std::vector<int64_t> BoundsOf(std::span<const RunDim> dims) {
  std::vector<int64_t> out;
  for (const RunDim& d : dims) out.push_back(d.bound);
  return out;
}

UOp Fill(Graph* g, const Padded& x, std::span<const int64_t> axes, int64_t word) {
  const std::vector<int64_t> bounds = BoundsOf(x.dims);
  UOp value = x.value;
  for (const int64_t a : axes) {
    const RunDim& dim = x.dims[static_cast<size_t>(a)];
    if (dim.fixed()) continue;
    Slab s = SlabOf(g, value, bounds, static_cast<size_t>(a));
    Mask(g, &s, g->Make(Op::kCmpLt, {Iota(g, s.axis), dim.size}), word);
    value = Fixed(g, Op::kReshape, s.value, bounds);
  }
  return value;
}

// Axes are cut into groups of equal numbers of elements; each is brought from the one order into
// the other by itself.
Padded Reshape(Graph* g, const Padded& x, std::vector<RunDim> to) {
  const std::vector<int64_t> bounds = BoundsOf(to);
  const auto is_empty = [](const RunDim& d) { return d.fixed() && d.bound == 0; };
  if (std::ranges::any_of(x.dims, is_empty) || std::ranges::any_of(to, is_empty)) {
    const UOp zero = g->ConstWord(x.value.dtype(), 0);
    const std::vector<int64_t> ones(bounds.size(), 1);
    return {Fixed(g, Op::kExpand, Fixed(g, Op::kReshape, zero, ones), bounds), std::move(to)};
  }
  UOp value = x.value;
  size_t i = 0, j = 0;
  Count from_count, to_count;
  while (i < x.dims.size() || j < to.size()) {
    // The shortest group: for the fewest axes of `from`, the fewest of `to` that go with them.
    const size_t i0 = i, j0 = j;
    const Count done = from_count;
    for (bool closed = false; !closed;) {
      if (i < x.dims.size()) from_count = Times(from_count, x.dims[i++]);
      to_count = done;
      for (j = j0; j < to.size() && !closed;) {
        to_count = Times(to_count, to[j++]);
        closed = to_count == from_count;
      }
      closed |= i == x.dims.size();  // what is left has one element on both sides
    }
    const auto from_group = std::span(x.dims).subspan(i0, i - i0);
    const auto to_group = std::span(to).subspan(j0, j - j0);
    Slab s{value, ProductOf(std::span(to).first(j0)), ProductOf(from_group),
           ProductOf(std::span(x.dims).subspan(i))};
    s.value = Fixed(g, Op::kReshape, value, {s.before, s.axis, s.after});
    if (InOrder(from_group) && InOrder(to_group)) {
      Window(g, &s, 0, ProductOf(to_group));
    } else if (from_group.size() != 1 || to_group.size() != 1) {
      Gather(g, &s, Places(g, from_group, to_group));
    }
    value = s.value;
  }
  return {Fixed(g, Op::kReshape, value, bounds), std::move(to)};
}

Padded Expand(Graph* g, const Padded& x, std::vector<RunDim> to) {
  return {Fixed(g, Op::kExpand, x.value, BoundsOf(to)), std::move(to)};
}

Padded Flip(Graph* g, const Padded& x, std::span<const int64_t> axes) {
  const std::vector<int64_t> bounds = BoundsOf(x.dims);
  Padded out = x;
  std::vector<int64_t> fixed;
  for (const int64_t a : axes) {
    const RunDim& dim = x.dims[static_cast<size_t>(a)];
    if (dim.fixed()) {
      fixed.push_back(a);
      continue;
    }
    Slab s = SlabOf(g, out.value, bounds, static_cast<size_t>(a));
    Gather(g, &s, Sub(g, Sub(g, dim.size, g->Index(1)), Iota(g, s.axis)));
    out.value = Fixed(g, Op::kReshape, s.value, bounds);
  }
  if (!fixed.empty()) out.value = Fixed(g, Op::kFlip, out.value, fixed);
  return out;
}

Padded Pad(Graph* g, const Padded& x, std::span<const RunDim> offsets, std::vector<RunDim> sizes) {
  return Move(g, x, offsets, std::move(sizes), /*forward=*/true);
}

Padded Shrink(Graph* g, const Padded& x, std::span<const RunDim> offsets,
              std::vector<RunDim> sizes) {
  return Move(g, x, offsets, std::move(sizes), /*forward=*/false);
}

}  // namespace telegrad
