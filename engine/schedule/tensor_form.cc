// A leaf whose axes are read in place is a view: fixed axes are cut out, windows (RANGE plus a
// constant, or its negation) shrunk, padded and flipped. Otherwise the computed axes become the
// rows of a GATHER. An axis that is read in place along a RANGE that a computed index depends on is
// a computed one too: its index is that RANGE.
#include "engine/schedule/tensor_form.h"

#include <algorithm>
#include <bit>

#include "engine/ir/scalar.h"

namespace telegrad {
namespace {

bool HasAxis(uint32_t axes, int axis) { return ((axes >> axis) & 1) != 0; }
uint32_t Bit(int axis) { return uint32_t{1} << axis; }

}  // namespace

Shape TensorForm::DimsOf(uint32_t axes) const {
  Shape out(dims_.size(), 1);
  for (size_t d = 0; d < dims_.size(); ++d) {
    if (HasAxis(axes, static_cast<int>(d))) out[d] = dims_[d];
  }
  return out;
}

UOp TensorForm::Expand(UOp x, uint32_t axes) {
  const Shape dims = DimsOf(axes);
  if (x.shape().empty() && !dims.empty()) {
    x = Reshaped(g_, x, Shape(dims.size(), 1));
  }
  return !x.valid() || std::ranges::equal(x.shape(), dims) ? x : g_.Make(Op::kExpand, {x}, dims);
}

UOp TensorForm::Make(UOp expression, uint32_t axes) {
  for (const UOp u : form_.Cone(expression)) {
    if (made_.contains(u.id())) continue;
    // What only a view's indices need is left out, below.
    made_.emplace(u.id(), UOp());
  }
  // Sources first, each when it is asked for.
  std::vector<UOp> stack{expression};
  while (!stack.empty()) {
    const UOp u = stack.back();
    if (made_.at(u.id()).valid()) {
      stack.pop_back();
      continue;
    }
    const size_t before = stack.size();
    const auto need = [&](UOp s) {
      if (!made_.at(s.id()).valid()) stack.push_back(s);
    };
    if (form_.is_leaf(u)) {
      for (const Access& access : Plan(form_.leaf(u))) {
        if (access.kind == Access::kComputed) need(access.index);
      }
    } else if (!u.is(Op::kRange)) {
      for (int i = 0; i < u.num_src(); ++i) need(u.src(i));
    }
    if (stack.size() > before) continue;
    const UOp made = Node(u);
    if (!made.valid()) return made;
    made_[u.id()] = made;
    stack.pop_back();
  }
  return Expand(made_.at(expression.id()), axes);
}

UOp TensorForm::Node(UOp u) {
  if (u.is_const()) return g_.ConstWord(u.dtype(), u.const_word());
  if (u.is(Op::kRange)) {
    const auto axis = static_cast<size_t>(u.range_id());
    const UOp iota = g_.Make(Op::kIota, DType::kInt64, {}, {dims_[axis]});
    return Reshaped(g_, iota, DimsOf(Bit(static_cast<int>(axis))));
  }
  if (form_.is_leaf(u)) return LeafOf(u);
  if (u.is(Op::kWhere) && form_.is_leaf(u.src(1)) && u.src(2).is_const() &&
      ScalarToMemory(u.dtype(), u.src(2).const_word()) == 0 && IsOwnGate(u.src(0), u.src(1))) {
    return made_.at(u.src(1).id());
  }
  const uint32_t axes = form_.Axes(u);
  std::vector<UOp> src;
  for (int i = 0; i < u.num_src(); ++i) {
    const UOp s = made_.at(u.src(i).id());
    src.push_back(s.shape().empty() ? s : Expand(s, axes));
  }
  const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
  return g_.Make(u.op(), u.dtype(), src, arg);
}

bool TensorForm::IsOwnGate(UOp gate, UOp leaf) {
  const IndexForm::Leaf& at = form_.leaf(leaf);
  UOp computed;
  int64_t rows = 0;
  const std::vector<Access> plan = Plan(at);
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].kind != Access::kComputed) continue;
    if (computed.valid()) return false;
    computed = plan[i].index;
    rows = g_.shape(at.node)[i];
  }
  if (!computed.valid()) return false;
  const UOp own = InRange(form_.b(), computed, rows);
  return form_.b().Make(Op::kAnd, {own, gate}) == own;
}

std::vector<TensorForm::Access> TensorForm::Plan(const IndexForm::Leaf& leaf) {
  std::vector<Access> plan;
  uint32_t windows = 0, computed = 0;
  for (size_t i = 0; i < leaf.index.size(); ++i) {
    Access access;
    access.index = form_.graph().at(leaf.index[i]);
    const std::optional<Linear> sum = Linear::Of(access.index);
    if (access.index.is_const()) {
      access.kind = Access::kFixed;
      access.offset = access.index.const_word();
    } else if (sum && sum->terms().size() == 1 && sum->terms()[0].atom.is(Op::kRange) &&
               std::abs(sum->terms()[0].coefficient) == 1) {
      access.axis = static_cast<int>(sum->terms()[0].atom.range_id());
      access.flips = sum->terms()[0].coefficient < 0;
      access.offset = sum->constant();
      const int64_t n = dims_[static_cast<size_t>(access.axis)], m = g_.shape(leaf.node)[i];
      const int64_t begin = access.flips ? access.offset - n + 1 : access.offset;
      const bool meets = begin < m && begin + n > 0;  // somewhere
      if (meets && !HasAxis(windows, access.axis)) {
        access.kind = Access::kWindow;
        windows |= Bit(access.axis);
      }
    }
    plan.push_back(access);
    if (access.kind == Access::kComputed) computed |= form_.Axes(access.index);
  }
  for (Access& access : plan) {
    if (access.kind == Access::kWindow && HasAxis(computed, access.axis)) {
      access.kind = Access::kComputed;
    }
  }
  return plan;
}

UOp TensorForm::Cut(UOp tensor, std::span<const Access> plan) {
  Shape part, around;
  std::vector<int64_t> flips;
  for (size_t i = 0; i < plan.size(); ++i) {
    const Access& a = plan[i];
    const int64_t m = tensor.shape()[i];
    int64_t begin = 0, size = m, before = 0, whole = m;
    if (a.kind == Access::kFixed) {
      begin = std::clamp<int64_t>(a.offset, 0, m - 1);
      size = whole = 1;
    } else if (a.kind == Access::kWindow) {
      // Of the axis, reversed where it flips, from `from` on.
      const int64_t from = a.flips ? m - 1 - a.offset : a.offset;
      whole = dims_[static_cast<size_t>(a.axis)];
      begin = std::max<int64_t>(from, 0);
      size = std::min(m, from + whole) - begin;
      before = begin - from;
      if (a.flips) flips.push_back(static_cast<int64_t>(i));
    }
    part.insert(part.end(), {begin, size});
    around.insert(around.end(), {before, whole});
  }
  if (!flips.empty()) tensor = g_.Make(Op::kFlip, {tensor}, flips);
  const auto changes = [](ShapeView from, const Shape& pairs) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (pairs[2 * i] != 0 || pairs[2 * i + 1] != from[i]) return true;
    }
    return false;
  };
  if (changes(tensor.shape(), part)) tensor = g_.Make(Op::kShrink, {tensor}, part);
  if (tensor.valid() && changes(tensor.shape(), around)) {
    tensor = g_.Make(Op::kPad, {tensor}, around);
  }
  return tensor;
}

UOp TensorForm::ToAxes(UOp x, std::span<const uint32_t> sets) {
  // Where each axis lies now.
  std::vector<int64_t> at(dims_.size(), -1), order;
  int64_t next = 0;
  uint32_t all = 0;
  for (uint32_t set : sets) {
    all |= set;
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (HasAxis(set, static_cast<int>(d))) at[d] = next++;
    }
  }
  for (int64_t a : at) {
    if (a >= 0) order.push_back(a);
  }
  if (!std::ranges::is_sorted(order)) x = g_.Make(Op::kPermute, {x}, order);
  return Reshaped(g_, x, DimsOf(all));
}

UOp TensorForm::LeafOf(UOp leaf) {
  const IndexForm::Leaf at = form_.leaf(leaf);
  const std::vector<Access> plan = Plan(at);
  UOp tensor = g_.at(at.node);
  if (plan.empty()) return tensor;
  tensor = Cut(tensor, plan);
  if (!tensor.valid()) return tensor;

  // Computed axes first, then windows by their RANGE; fixed ones, of size 1, go away.
  std::vector<size_t> order;
  Shape dims;
  uint32_t windows = 0, depends = 0;
  int64_t rows = 1;
  bool gathers = false;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].kind != Access::kComputed) continue;
    gathers = true;
    order.push_back(i);
    rows *= tensor.shape()[i];
    depends |= form_.Axes(plan[i].index);
  }
  const size_t computed = order.size();
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].kind == Access::kFixed) order.push_back(i);
  }
  std::vector<std::pair<int, size_t>> in_place;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i].kind == Access::kWindow) in_place.emplace_back(plan[i].axis, i);
  }
  std::ranges::sort(in_place);
  for (const auto& [axis, i] : in_place) {
    order.push_back(i);
    windows |= Bit(axis);
  }
  const std::vector<int64_t> axes(order.begin(), order.end());
  if (!std::ranges::is_sorted(axes)) tensor = g_.Make(Op::kPermute, {tensor}, axes);
  if (!tensor.valid()) return tensor;
  if (!gathers) return Reshaped(g_, tensor, DimsOf(windows));

  // The row-major number of the row.
  UOp row;
  int64_t stride = 1;
  for (size_t k = computed; k-- > 0;) {
    UOp part = made_.at(plan[order[k]].index.id());
    if (stride > 1) part = g_.Make(Op::kMul, {part, g_.Index(stride)});
    part = Expand(part, depends);
    row = row.valid() ? g_.Make(Op::kAdd, {row, part}) : part;
    stride *= g_.shape(at.node)[order[k]];
  }
  if (!row.valid()) return row;
  Shape index_dims;
  for (size_t d = 0; d < dims_.size(); ++d) {
    if (HasAxis(depends, static_cast<int>(d))) index_dims.push_back(dims_[d]);
  }
  row = Reshaped(g_, row, index_dims);
  Shape source_dims{rows};
  for (const auto& [axis, i] : in_place) source_dims.push_back(dims_[static_cast<size_t>(axis)]);
  tensor = Reshaped(g_, tensor, source_dims);
  const uint32_t sets[] = {depends, windows};
  return ToAxes(g_.Make(Op::kGather, {tensor, row}), sets);
}

}  // namespace telegrad
