// The rules are written with Tensor's own methods, so that what they make can be differentiated
// again.
//
// A value on several devices is one value here: its instances are equal, or parts of a whole.
#include "engine/frontend/autograd/gradient_rules.h"

#include <algorithm>
#include <array>
#include <numbers>
#include <optional>

#include "engine/base/status.h"
#include "engine/frontend/tensor/builder.h"

namespace telegrad {
namespace {

using Grads = std::vector<Tensor>;
using Node = GradientNode;

Grads Stop(const Node&, const Tensor&) { return {}; }
Grads Pass(const Node&, const Tensor& g) { return {g}; }

Grads Expand(const Node& n, const Tensor& g) {
  const Dims from = n.x().dims(), to = g.dims();
  Axes axes;
  for (size_t i = 0; i < to.size(); ++i) {
    if (from[i] != to[i]) axes.push_back(static_cast<int64_t>(i));
  }
  return {g.Sum(axes, true)};
}

Grads Permute(const Node& n, const Tensor& g) {
  Axes inverse(n.arg.size());
  for (size_t i = 0; i < n.arg.size(); ++i) inverse[n.arg[i]] = static_cast<int64_t>(i);
  return {g.Permute(inverse)};
}

// PAD and SHRINK undo each other: the same offsets, the sizes of the source.
Grads PlaceGradient(const Node& n, const Tensor& g, Op inverse) {
  const Dims from = n.x().dims();
  Dims words;
  for (size_t i = 0; i < from.size(); ++i) {
    words.push_back(n.Size(2 * i));
    words.push_back(from[i]);
  }
  return {n.out.builder()->MakeSized(inverse, DType::kVoid, {g}, words)};
}

Grads Cat(const Node& n, const Tensor& g) {
  Grads out;
  int64_t begin = 0;
  for (const Tensor& part : n.src) {
    const int64_t size = part.shape()[n.arg[0]];
    out.push_back(g.Narrow(n.arg[0], begin, size));
    begin += size;
  }
  return out;
}

Grads Cast(const Node& n, const Tensor& g) { return {g.Cast(n.x().dtype())}; }

Grads Maximum(const Node& n, const Tensor& g) {
  const Tensor first = n.y().Lt(n.x());
  return {first.Where(g, 0), first.Where(0, g)};
}

Grads Where(const Node& n, const Tensor& g) {
  return {Tensor(), n.x().Where(g, 0), n.x().Where(0, g)};
}

// The exponent of a base of 0 has the derivative 0 where the power is defined, as in PyTorch.
Grads Pow(const Node& n, const Tensor& g) {
  const Tensor& x = n.x();
  const Tensor& y = n.y();
  const Tensor base = y.Eq(0).Where(0, g * y * x.Pow(y - 1));
  const Tensor flat = x.Eq(0).And(y.Ge(0));
  return {base, flat.Where(0, g * n.out * flat.Where(1, x).Log())};
}

// ShiftedRows along the last axis by `by` elements, away from the first one, ones moving in.
Tensor ShiftedRows(const Tensor& x, int64_t by) {
  std::vector<int64_t> pads(2 * x.rank(), 0);
  pads[2 * x.rank() - 2] = by;
  return x.Narrow(-1, 0, x.dim(-1) - by).Pad(pads, 1);
}

// For each element along the last axis the product of those before it: shifted by one, then runs of
// doubling length.
Tensor ProductBefore(const Tensor& x) {
  const int64_t n = x.dim(-1);
  Tensor product = ShiftedRows(x, 1);
  for (int64_t run = 1; run < n - 1; run *= 2) product = product * ShiftedRows(product, run);
  return product;
}

// An element's derivative is the product of all others, which no quotient gives where it is 0.
Grads ProductGradient(const Node& n, const Tensor& g) {
  const Dims from = n.x().dims();
  if (!from.is_static()) {
    n.out.builder()->Fail(Unimplemented("gradient: a product over ", ToString(from),
                                        ", which is symbolic, has no rule"));
    return {};
  }
  if (n.x().size() == 0) return {};
  const std::vector<bool> folded = [&] {
    std::vector<bool> out(from.size(), false);
    for (size_t i = 1; i < n.arg.size(); ++i) out[n.arg[i]] = true;
    return out;
  }();
  Axes order;
  for (const bool last : {false, true}) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (folded[i] == last) order.push_back(static_cast<int64_t>(i));
    }
  }
  Axes inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[order[i]] = static_cast<int64_t>(i);
  const Tensor front = n.x().Permute(order);
  const Tensor rows = front.Reshape({n.out.size(), n.x().size() / n.out.size()});
  const Tensor others = ProductBefore(rows) * ProductBefore(rows.Flip({1})).Flip({1});
  return {g.Expand(from) * others.Reshape(front.dims()).Permute(inverse)};
}

Grads Reduce(const Node& n, const Tensor& g) {
  const auto kind = static_cast<ReduceKind>(n.arg[0]);
  const Dims from = n.x().dims();
  if (kind == ReduceKind::kAdd) return {g.Expand(from)};
  if (kind == ReduceKind::kMul) return ProductGradient(n, g);
  const Tensor hit = n.x().Eq(n.out.Expand(from));
  const Tensor hits = hit.Cast(g.dtype()).Sum(Axes(n.arg.begin() + 1, n.arg.end()), true);
  return {hit.Where((g / hits).Expand(from), 0)};
}

// Row r of the source gets the sum of g[i] over all i whose index is r.
Grads Gather(const Node& n, const Tensor& g) {
  return {n.x().ZerosLike().Scatter(n.y(), g, ScatterKind::kAdd)};
}

// Of several updates to one row the last one stays.
Grads ScatterSet(const Node& n, const Tensor& g) {
  const Tensor& index = n.y();
  Builder* b = n.out.builder();
  const Tensor order = b->Iota(DType::kInt64, Dim(index.Flatten().SizeOf({0})));
  const Tensor last = b->Full(DType::kInt64, Dims{n.x().dims()[0]}, -1)
                          .Scatter(index.Flatten(), order, ScatterKind::kSet);
  Tensor stays = last.Gather(index).Eq(order.Reshape(index.dims()));
  while (stays.valid() && stays.rank() < g.rank() + index.rank() - 1) stays = stays.Unsqueeze(-1);
  const Tensor& updates = n.src[2];
  return {g.Scatter(index, updates.ZerosLike(), ScatterKind::kSet), Tensor(),
          stays.Where(g.Gather(index), 0)};
}

// Where an update is 0, the product of the others takes the place of a quotient.
Grads ScatterMul(const Node& n, const Tensor& g) {
  const Tensor &index = n.y(), &updates = n.src[2];
  const Tensor ones = n.x().OnesLike(), is_zero = updates.Eq(0);
  const Tensor product = ones.Scatter(index, updates, ScatterKind::kMul);
  const Tensor nonzero = is_zero.Where(1, updates);
  const Tensor rest = ones.Scatter(index, nonzero, ScatterKind::kMul);
  const Tensor zeros = n.x().ZerosLike().Scatter(index, is_zero.Cast(g.dtype()), ScatterKind::kAdd);
  const Tensor g_rest = g * n.x() * rest;
  const Tensor if_no_zero = zeros.Eq(0).Where(g_rest, 0).Gather(index) / nonzero;
  const Tensor if_one_zero = zeros.Eq(1).Where(g_rest, 0).Gather(index);
  return {g * product, Tensor(), is_zero.Where(if_one_zero, if_no_zero)};
}

// All that reached the extreme share the gradient.
Grads ScatterExtreme(const Node& n, const Tensor& g) {
  const Tensor &index = n.y(), &updates = n.src[2];
  const Tensor here = n.x().Eq(n.out), there = updates.Eq(n.out.Gather(index));
  const Tensor hits = here.Cast(g.dtype()).Scatter(index, there.Cast(g.dtype()), ScatterKind::kAdd);
  const Tensor share = g / hits;
  return {here.Where(share, 0), Tensor(), there.Where(share.Gather(index), 0)};
}

Grads Scatter(const Node& n, const Tensor& g) {
  switch (static_cast<ScatterKind>(n.arg[0])) {
    case ScatterKind::kSet:
      return ScatterSet(n, g);
    case ScatterKind::kAdd:
      return {g, Tensor(), g.Gather(n.y())};
    case ScatterKind::kMul:
      return ScatterMul(n, g);
    case ScatterKind::kMin:
    case ScatterKind::kMax:
      return ScatterExtreme(n, g);
  }
  return {};
}

// --- Assignment ---

Tensor Moved(const Tensor& x, UOp movement) {
  std::vector<UOp> src(static_cast<size_t>(movement.num_src()));
  for (int i = 1; i < movement.num_src(); ++i) src[static_cast<size_t>(i)] = movement.src(i);
  src[0] = x.uop();
  return {x.builder(), x.builder()->graph().Make(movement.op(), DType::kVoid, src, movement.arg())};
}

// The movements that make `view` of `base`, or of what stores left of it, the first one first;
// nothing where it is no view.
std::optional<std::vector<UOp>> MovementsFrom(UOp base, UOp view) {
  std::vector<UOp> out;
  for (; view != base && !(view.is(Op::kAfter) && view.src(0) == base); view = view.src(0)) {
    if (!Is(view.op(), kMovement)) return std::nullopt;
    out.push_back(view);
  }
  std::ranges::reverse(out);
  return out;
}

// True where the view made by `movements` of a tensor like `g` has its elements.
Tensor Covered(const Tensor& g, const std::vector<UOp>& movements) {
  Builder* b = g.builder();
  Tensor inside = b->Full(DType::kBool, Dims::Of(movements.back()), true);
  for (size_t i = movements.size(); i-- > 0;) {
    const Node n = Node::Of(b, movements[i]);
    switch (movements[i].op()) {
      case Op::kReshape:
        inside = inside.Reshape(n.x().dims());
        break;
      case Op::kPermute:
        inside = Permute(n, inside)[0];
        break;
      case Op::kFlip:
        inside = inside.Flip(n.arg);
        break;
      case Op::kShrink:
        inside = PlaceGradient(n, inside, Op::kPad)[0];
        break;
      default:
        return b->Fail(Unimplemented("gradient: a store into a view by ", Name(movements[i].op()),
                                     " has no rule"));
    }
  }
  return inside;
}

// Each value stored has the gradient of the part that it fills, and what was there before has none;
// of several the last one stays.
Grads After(const Node& n, const Tensor& g) {
  Grads out(n.src.size());
  Tensor rest = g;
  for (size_t i = n.src.size(); i-- > 1;) {
    const UOp store = n.src[i].uop();
    const auto movements =
        store.is(Op::kStore) ? MovementsFrom(n.x().uop(), store.src(0)) : std::nullopt;
    if (!movements) {
      n.out.builder()->Fail(Unimplemented("gradient: an effect on another tensor has no rule"));
      return {};
    }
    out[i] = rest;
    for (const UOp movement : *movements) out[i] = Moved(out[i], movement);
    rest = movements->empty() ? rest.ZerosLike() : Covered(rest, *movements).Where(0, rest);
  }
  out[0] = rest;
  return out;
}

// --- Devices ---

Grads Copy(const Node& n, const Tensor& g) {
  const std::span<const int64_t> home = n.x().uop().devices();
  return {home.empty() ? g : g.To(home[0])};
}

// Of parts, which are not equal, the part itself, so that MSELECT is always of equal instances.
Tensor Instance(const Tensor& x, size_t i) {
  if (x.uop().is(Op::kMStack)) return {x.builder(), x.uop().src(static_cast<int>(i))};
  const int64_t arg[] = {static_cast<int64_t>(i)};
  return x.builder()->Make(Op::kMSelect, DType::kVoid, {x}, arg);
}

Tensor Instances(Builder* builder, const std::vector<Tensor>& parts) {
  std::vector<UOp> uops;
  for (const Tensor& part : parts) {
    if (!part.valid()) return part;
    uops.push_back(part.uop());
  }
  return {builder, builder->graph().Make(Op::kMStack, DType::kVoid, uops)};
}

Grads Mstack(const Node& n, const Tensor& g) {
  Grads out;
  for (size_t i = 0; i < n.src.size(); ++i) out.push_back(Instance(g, i));
  return out;
}

// Of equal instances: their gradients are equal too.
Grads Mselect(const Node& n, const Tensor& g) {
  return {n.out.builder()->Make(Op::kCopy, DType::kVoid, {g}, n.x().uop().devices())};
}

// Instance i of the source is part i of the whole.
Grads Unshard(const Node& n, const Tensor& g) {
  const size_t count = n.out.uop().devices().size();
  const int64_t axis = n.arg[0], size = n.x().shape()[axis];
  std::vector<Tensor> parts;
  for (size_t i = 0; i < count; ++i) {
    parts.push_back(
        g.Narrow(axis, static_cast<int64_t>(i) * size, size).To(n.out.uop().devices()[i]));
  }
  return {Instances(n.out.builder(), parts)};
}

Grads Allreduce(const Node& n, const Tensor& g) {
  if (static_cast<ReduceKind>(n.arg[0]) == ReduceKind::kAdd) return {g};
  n.out.builder()->Fail(
      Unimplemented("gradient: an allreduce by a maximum or product has no rule"));
  return {};
}

struct Row {
  Op op;
  GradientRule rule;
};

constexpr Row kRules[] = {
    {Op::kReshape, [](const Node& n, const Tensor& g) { return Grads{g.Reshape(n.x().dims())}; }},
    {Op::kExpand, Expand},
    {Op::kPermute, Permute},
    {Op::kFlip, [](const Node& n, const Tensor& g) { return Grads{g.Flip(n.arg)}; }},
    {Op::kPad, [](const Node& n, const Tensor& g) { return PlaceGradient(n, g, Op::kShrink); }},
    {Op::kShrink, [](const Node& n, const Tensor& g) { return PlaceGradient(n, g, Op::kPad); }},
    {Op::kCat, Cat},
    {Op::kNeg, [](const Node&, const Tensor& g) { return Grads{-g}; }},
    {Op::kExp2,
     [](const Node& n, const Tensor& g) { return Grads{g * n.out * std::numbers::ln2}; }},
    {Op::kLog2,
     [](const Node& n, const Tensor& g) { return Grads{g / (n.x() * std::numbers::ln2)}; }},
    {Op::kSqrt, [](const Node& n, const Tensor& g) { return Grads{g / (n.out * 2)}; }},
    {Op::kRecip, [](const Node& n, const Tensor& g) { return Grads{-(g * n.out * n.out)}; }},
    {Op::kSin, [](const Node& n, const Tensor& g) { return Grads{g * n.x().Cos()}; }},
    {Op::kTrunc, Stop},
    {Op::kFloor, Stop},
    {Op::kCast, Cast},
    {Op::kBitcast, Stop},
    {Op::kAdd, [](const Node&, const Tensor& g) { return Grads{g, g}; }},
    {Op::kSub, [](const Node&, const Tensor& g) { return Grads{g, -g}; }},
    {Op::kMul, [](const Node& n, const Tensor& g) { return Grads{g * n.y(), g * n.x()}; }},
    {Op::kFDiv,
     [](const Node& n, const Tensor& g) { return Grads{g / n.y(), -(g * n.out / n.y())}; }},
    {Op::kMax, Maximum},
    {Op::kPow, Pow},
    {Op::kMulAcc, [](const Node& n, const Tensor& g) { return Grads{g * n.y(), g * n.x(), g}; }},
    {Op::kWhere, Where},
    {Op::kReduce, Reduce},
    {Op::kGather, Gather},
    {Op::kScatter, Scatter},
    {Op::kAfter, After},
    {Op::kStore, [](const Node&, const Tensor& g) { return Grads{Tensor(), g}; }},
    {Op::kContiguous, Pass},
    {Op::kDetach, Stop},
    {Op::kCopy, Copy},
    {Op::kMStack, Mstack},
    {Op::kMSelect, Mselect},
    {Op::kUnshard, Unshard},
    {Op::kAllReduce, Allreduce},
};

constexpr auto kRuleOf = [] {
  std::array<GradientRule, kNumOps> table{};
  for (const Row& row : kRules) table[static_cast<size_t>(row.op)] = row.rule;
  return table;
}();

}  // namespace

GradientNode GradientNode::Of(Builder* builder, UOp uop) {
  GradientNode n{Tensor(builder, uop), {}, {uop.arg().begin(), uop.arg().end()}};
  for (int i = 0; i < uop.num_src(); ++i) n.src.emplace_back(builder, uop.src(i));
  return n;
}

GradientRule FindGradientRule(Op op) { return kRuleOf[static_cast<size_t>(op)]; }

}  // namespace telegrad
