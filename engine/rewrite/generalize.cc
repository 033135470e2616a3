// One walk in post-order. A node becomes one of the same op over fixed shapes, with its symbolic
// dimensions kept beside it (padded.h). Most ops do to the padding what they do to the value, which
// harms nobody. The padding is filled where it would count: in a REDUCE of a symbolic axis, in the
// rows that GATHER and SCATTER may name, and in what STORE writes.
//
// A STORE to a symbolic view writes its whole buffer in place: the way back from the view to the
// buffer puts the value at its elements, and a mask that goes the same way says which they are; the
// others keep what they hold.
#include "engine/rewrite/generalize.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/ir/scalar.h"
#include "engine/rewrite/padded.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

bool IsVariable(UOp u) { return u.is(Op::kVar) && u.num_src() == 0; }

// Whether the run decides which elements a STORE writes.
bool HasSymbolicTarget(UOp store) {
  UOp view = store.src(0);
  bool symbolic = false;
  for (; Is(view.op(), kMovement); view = view.src(0)) {
    symbolic |= view.symbolic() || view.num_src() > 1;
  }
  return symbolic;
}

class Generalizer {
 public:
  Generalizer(UOp sink, std::span<const VarRange> ranges, Budget* budget)
      : from_(*sink.graph()), sink_(sink), ranges_(ranges), budget_(budget), made_(from_) {}

  absl::StatusOr<GeneralForm> Run();

 private:
  UOp Node(UOp u);
  UOp Var(UOp u);
  UOp Reduce(UOp u);
  UOp Gather(UOp u);
  UOp Scatter(UOp u);
  UOp Store(UOp u);
  // The movement op `u` of its source.
  Padded Move(UOp u);
  // From a view that a STORE may have to its source: `x` where the view is, zeros elsewhere.
  Padded Back(UOp view, const Padded& x);

  UOp Made(UOp u) const { return made_.at(u.id()); }
  UOp Source(UOp u, int i) const { return Made(u.src(i)); }
  RunDim Dim(UOp u, size_t axis) const {
    const UOp size = u.dim(static_cast<int>(axis));
    return size.valid() ? Sized(Made(size)) : RunDim{u.shape()[axis], {}};
  }
  std::vector<RunDim> Dims(UOp u) const {
    std::vector<RunDim> out;
    for (size_t i = 0; i < u.shape().size(); ++i) out.push_back(Dim(u, i));
    return out;
  }
  Padded Value(UOp u) const { return {Made(u), Dims(u)}; }
  // A word of dims or pairs.
  RunDim Word(UOp u, int64_t word) const {
    return word >= 0 ? RunDim{word, {}} : Sized(Source(u, static_cast<int>(-(word + 1))));
  }
  // Of a PAD or SHRINK.
  std::vector<RunDim> Offsets(UOp u) const {
    std::vector<RunDim> out;
    for (size_t i = 0; i < u.arg().size(); i += 2) out.push_back(Word(u, u.arg()[i]));
    return out;
  }
  static RunDim Sized(UOp size) {
    const int64_t bound = std::clamp<int64_t>(size.vmax(), 0, kMaxElements);
    return size.is_const() ? RunDim{bound, {}} : RunDim{bound, size};
  }
  // An index into rows of which only those of `rows` exist, and where it is an index at all; -1
  // elsewhere.
  UOp Inside(const Padded& index, const RunDim& rows);

  const Graph& from_;
  const UOp sink_;
  const std::span<const VarRange> ranges_;
  Budget* budget_;
  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  Graph& g_ = *graph_;
  NodeMap<UOp> made_;
  UOp values_;  // of the variables
};

absl::StatusOr<GeneralForm> Generalizer::Run() {
  const std::vector<uint32_t> order = PostOrder(sink_);
  GeneralForm out;
  for (uint32_t id : order) {
    if (from_.op(id) == Op::kParam) out.slot = std::max(out.slot, from_.at(id).slot() + 1);
  }
  if (out.slot >= kMaxParams) return Unimplemented("no slot is left for the variables");
  const int64_t dims[] = {static_cast<int64_t>(ranges_.size())};
  values_ = g_.Param(out.slot, DType::kInt64, dims);
  Budget::Held held(budget_);
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t before = g_.size();
    const UOp node = Node(from_.at(order[i]));
    TG_RETURN_IF_ERROR(g_.status());
    TG_RETURN_IF_ERROR(budget_->SpendNodes(1 + g_.size() - before));
    made_[order[i]] = node;
    if (i % 1024 == 0) {
      TG_RETURN_IF_ERROR(held.GrowTo(g_.bytes()));
      TG_RETURN_IF_ERROR(budget_->CheckTime());
    }
  }
  out.graph = {std::move(graph_), Made(sink_).id()};
  return out;
}

UOp Generalizer::Node(UOp u) {
  const bool symbolic = u.symbolic() || std::ranges::any_of(u.src_ids(), [&](uint32_t s) {
                          return from_.at(s).symbolic();
                        });
  if (IsVariable(u)) return Var(u);
  if (u.is(Op::kStore) && HasSymbolicTarget(u)) return Store(u);
  const auto sources =
      static_cast<size_t>(Is(u.op(), kSymbolic) ? Info(u.op()).min_src : u.num_src());
  if (symbolic || sources < static_cast<size_t>(u.num_src())) {
    switch (u.op()) {
      case Op::kIota: {
        const int64_t dims[] = {Dim(u, 0).bound};
        return g_.Make(Op::kIota, u.dtype(), std::span<const UOp>{}, dims);
      }
      case Op::kReshape:
      case Op::kExpand:
      case Op::kPad:
      case Op::kShrink:
      case Op::kFlip:
        return Move(u).value;
      case Op::kReduce:
        return Reduce(u);
      case Op::kGather:
        return Gather(u);
      case Op::kScatter:
        return Scatter(u);
      default:
        break;
    }
  }
  std::vector<UOp> src;
  for (int i = 0; i < u.num_src(); ++i) src.push_back(Source(u, i));
  const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
  return g_.Make(u.op(), u.dtype(), src, arg);
}

UOp Generalizer::Var(UOp u) {
  const auto it = std::ranges::find(ranges_, u.var_id(), &VarRange::id);
  if (it == ranges_.end()) {
    return g_.Fail(Internal("generalize: variable ", u.var_id(), " has no range"));
  }
  const std::vector<int64_t> part{it - ranges_.begin(), 1};
  const UOp value =
      g_.Make(Op::kReshape, {g_.Make(Op::kShrink, {values_}, part)}, std::span<const int64_t>{});
  return g_.Make(Op::kVar, DType::kVoid, {value}, {it->id, it->min, it->max, it->multiple});
}

Padded Generalizer::Move(UOp u) {
  const Padded x = Value(u.src(0));
  switch (u.op()) {
    case Op::kReshape:
      return Reshape(&g_, x, Dims(u));
    case Op::kExpand:
      return Expand(&g_, x, Dims(u));
    case Op::kFlip:
      return Flip(&g_, x, u.arg());
    case Op::kPad:
      return Pad(&g_, x, Offsets(u), Dims(u));
    default:
      return Shrink(&g_, x, Offsets(u), Dims(u));
  }
}

UOp Generalizer::Reduce(UOp u) {
  const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
  const int64_t neutral = ReduceIdentity(ReduceKind{arg[0]}, u.dtype());
  return g_.Make(Op::kReduce, {Fill(&g_, Value(u.src(0)), std::span(arg).subspan(1), neutral)},
                 arg);
}

UOp Generalizer::Inside(const Padded& index, const RunDim& rows) {
  Padded i = index;
  if (i.value.dtype() != DType::kInt64) {
    i.value = g_.Make(Op::kCast, DType::kInt64, {i.value});
  }
  if (!rows.fixed()) {
    const UOp exists = g_.Make(Op::kCmpLt, {i.value, rows.size});
    i.value = g_.Make(Op::kWhere, {exists, i.value, g_.Index(-1)});
  }
  std::vector<int64_t> axes;
  for (size_t a = 0; a < i.dims.size(); ++a) axes.push_back(static_cast<int64_t>(a));
  return Fill(&g_, i, axes, -1);
}

UOp Generalizer::Gather(UOp u) {
  return g_.Make(Op::kGather, {Source(u, 0), Inside(Value(u.src(1)), Dim(u.src(0), 0))});
}

UOp Generalizer::Scatter(UOp u) {
  const int64_t arg[] = {ToWord(u.scatter_kind())};
  const UOp index = Inside(Value(u.src(1)), Dim(u.src(0), 0));
  return g_.Make(Op::kScatter, {Source(u, 0), index, Source(u, 2)}, arg);
}

Padded Generalizer::Back(UOp view, const Padded& x) {
  const std::vector<RunDim> dims = Dims(view.src(0));
  switch (view.op()) {
    case Op::kReshape:
      return Reshape(&g_, x, dims);
    case Op::kFlip:
      return Flip(&g_, x, view.arg());
    case Op::kPermute: {
      std::vector<int64_t> axes(view.arg().size());
      for (size_t i = 0; i < axes.size(); ++i) {
        axes[static_cast<size_t>(view.axes()[i])] = static_cast<int64_t>(i);
      }
      return {g_.Make(Op::kPermute, {x.value}, axes), dims};
    }
    default:  // SHRINK
      return Pad(&g_, x, Offsets(view), dims);
  }
}

UOp Generalizer::Store(UOp u) {
  const std::vector<RunDim> dims = Dims(u.src(0));
  const std::vector<int64_t> bounds = BoundsOf(dims), ones(dims.size(), 1);
  const auto spread = [&](UOp scalar) {
    return g_.Make(Op::kExpand, {g_.Make(Op::kReshape, {scalar}, ones)}, bounds);
  };
  Padded value{Source(u, 1), dims}, mask{spread(g_.True()), dims};
  if (value.value.shape().empty() && !bounds.empty()) value.value = spread(value.value);
  std::vector<int64_t> axes(dims.size());
  std::iota(axes.begin(), axes.end(), 0);
  mask.value = Fill(&g_, mask, axes, 0);
  UOp view = u.src(0);
  for (; Is(view.op(), kMovement); view = view.src(0)) {
    value = Back(view, value);
    mask = Back(view, mask);
  }
  const UOp buffer = Made(view);
  return g_.Make(Op::kStore, {buffer, g_.Make(Op::kWhere, {mask.value, value.value, buffer})});
}

}  // namespace

std::vector<VarRange> RangesOf(UOp sink) {
  std::vector<VarRange> out;
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    if (!IsVariable(u)) continue;
    const VarRange range{u.var_id(), u.var_min(), u.var_max(), u.var_multiple()};
    const auto it = std::ranges::find(out, range.id, &VarRange::id);
    if (it == out.end()) {
      out.push_back(range);
    } else {  // what all of its nodes allow
      it->min = std::max(it->min, range.min);
      it->max = std::min(it->max, range.max);
      it->multiple = std::lcm(it->multiple, range.multiple);
    }
  }
  std::ranges::sort(out);
  return out;
}

std::vector<int64_t> SizesOf(UOp sink) {
  const Graph& g = *sink.graph();
  const std::vector<uint32_t> order = PostOrder(sink);
  NodeMap<bool> of_size(g);
  for (uint32_t id : order) {
    for (uint32_t dim : g.symbolic_dims(id)) {
      if (dim != kStaticDim) of_size[dim] = true;
    }
    if (g.op(id) == Op::kLoop) of_size[g.src(id)[1]] = true;
  }
  std::vector<int64_t> out;
  for (size_t i = order.size(); i-- > 0;) {  // users first
    const UOp u = g.at(order[i]);
    if (!of_size[u]) continue;
    for (uint32_t s : u.src_ids()) of_size[s] = true;
    if (IsVariable(u)) out.push_back(u.var_id());
  }
  return out;
}

absl::StatusOr<GeneralForm> Generalize(UOp sink, std::span<const VarRange> ranges, Budget* budget) {
  return Generalizer(sink, ranges, budget).Run();
}

}  // namespace telegrad
