// The walk from a kernel's output down to memory. A position is (node, one index expression per
// axis, validity); a movement op maps the position of its result to that of its source, so no view
// is ever stored. Positions are memoized: what is used twice at the same place is computed once.
//
// Validity is the condition under which the position lies inside every PAD passed so far. Loads
// carry it as their gate, because outside of it the index may be anything.
#include "engine/schedule/kernel_builder.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/ir/scalar.h"
#include "engine/rewrite/rewriter.h"
#include "engine/rules/algebra.h"
#include "engine/rules/divmod.h"
#include "engine/rules/facts.h"

namespace telegrad {
namespace {

using Indices = std::vector<UOp>;

struct Position {
  uint32_t node;
  uint32_t valid;               // id of a bool node of the kernel graph
  std::vector<uint32_t> index;  // ids, one for each axis of the node

  friend bool operator==(const Position&, const Position&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Position& p) {
    return H::combine(std::move(h), p.node, p.valid, p.index);
  }
};

class Builder {
 public:
  Builder(const Graph& tensor, const ReadFrom& read_from, Budget* budget)
      : tensor_(tensor),
        read_from_(read_from),
        budget_(budget),
        held_(budget),
        b_(&graph_, kTables, budget) {
    graph_.LimitSize(budget);
  }

  absl::StatusOr<KernelGraph> Build(const KernelRequest& request);

 private:
  struct Part {
    int source;
    int64_t begin, end;  // on the axis
  };
  struct Frame {
    Position at;
    std::vector<UOp> values = {};  // of the sources evaluated so far
    Indices reduce_ranges = {};    // opened by a REDUCE
    std::optional<UOp> gate = {};  // of a PAD or GATHER
    std::vector<Part> parts = {};  // of a CAT: those that the position can lie in
  };

  // Of a memoized position, which is also a frame of the stack at first.
  static int64_t BytesOf(const Position& p) {
    constexpr size_t kSlack = 2;  // of tables that are half full
    return static_cast<int64_t>(
        kSlack * (sizeof(Position) + sizeof(UOp) + p.index.size() * sizeof(uint32_t)) +
        sizeof(Frame));
  }

  // The STORE of an output, over the loops.
  absl::StatusOr<UOp> StoreOutput(const KernelOutput& output, const Indices& loops);
  // The kernel that is `stores` for all values of `ranges`.
  absl::StatusOr<KernelGraph> Close(const std::vector<UOp>& stores, std::span<const UOp> ranges);
  absl::StatusOr<KernelGraph> Finish(const std::vector<UOp>& stores, const std::vector<UOp>& ends);
  UOp End(UOp effect, std::span<const UOp> ranges);
  // The order in which every reduction is folded as seldom as it can be.
  std::vector<UOp> LoopOrder(const std::vector<UOp>& stores, std::vector<UOp> ranges) const;
  FrozenGraph FreezeLive(UOp sink);
  // The value at a position, evaluated with an explicit stack.
  absl::StatusOr<UOp> Evaluate(Position root);
  // Either the next source position that `frame` needs, or nullopt with the result in `*done`.
  std::optional<Position> Step(Frame* frame, UOp* done);
  std::optional<Position> StepElementwise(Frame* frame, UOp* done);
  std::optional<Position> StepMovement(Frame* frame, UOp* done);
  std::optional<Position> StepReduce(Frame* frame, UOp* done);
  std::optional<Position> StepGather(Frame* frame, UOp* done);
  std::optional<Position> StepCat(Frame* frame, UOp* done);
  // The store of a SCATTER's rows; its ranges go to `*ranges`.
  absl::StatusOr<UOp> ScatterStore(UOp scatter, std::vector<UOp>* ranges);
  UOp Combine(ScatterKind kind, UOp old, UOp value);

  // The position in a movement op's source; `*valid` gains the conditions of a PAD.
  Indices Move(uint32_t node, const Indices& index, UOp* valid);
  UOp ZeroOutside(UOp gate, UOp value);
  Indices Reshape(ShapeView from, ShapeView to, const Indices& index);

  // Of `node`'s value, which lies in `memory`.
  UOp Load(uint32_t node, MemoryId memory, const Indices& index, UOp valid);
  // `after`: what has changed the memory, or ranges in each of whose iterations it may have
  // changed.
  UOp Address(MemoryId memory, UOp like, const Indices& index, UOp valid,
              std::span<const UOp> after = {});
  int64_t Argument(MemoryId memory);
  // An AFTER is a state of its PARAM's memory, the base of a SCATTER one of the SCATTER's.
  MemoryId Physical(MemoryId memory) const {
    const Op op = tensor_.op(memory & ~kCopyBit);
    const bool copy = (memory & kCopyBit) != 0;
    if (!copy && op == Op::kAfter) return tensor_.src(memory)[0];
    return copy && op == Op::kScatter ? memory & ~kCopyBit : memory;
  }

  // What a load gives where its gate is false.
  UOp Zero(DType dtype) { return graph_.ConstWord(dtype, ScalarFromMemory(dtype, 0)); }
  UOp Add(UOp x, UOp y) { return b_.Make(Op::kAdd, {x, y}); }
  UOp Mul(UOp x, int64_t c) { return b_.Make(Op::kMul, {x, graph_.Index(c)}); }
  UOp Div(UOp x, int64_t c) { return b_.Make(Op::kFloorDiv, {x, graph_.Index(c)}); }
  UOp Mod(UOp x, int64_t c) { return b_.Make(Op::kFloorMod, {x, graph_.Index(c)}); }
  UOp And(UOp x, UOp y) { return b_.Make(Op::kAnd, {x, y}); }
  // 0 <= x < n; folds to true where the bounds show it.
  UOp InRange(UOp x, int64_t n) {
    return And(b_.Make(Op::kCmpLt, {graph_.Index(-1), x}),
               b_.Make(Op::kCmpLt, {x, graph_.Index(n)}));
  }
  // The range that a REDUCE folds along `axis`, which independent ones at the same place share.
  UOp FoldedRange(UOp reduce, const Indices& index, int64_t axis);
  UOp NewRange(AxisType type, int64_t size) {
    return size == 1 ? graph_.Index(0) : graph_.Range(next_range_++, type, graph_.Index(size));
  }
  Indices ToIndices(const Position& p) const {
    Indices out;
    for (uint32_t id : p.index) out.push_back(graph_.at(id));
    return out;
  }
  static Position At(uint32_t node, const Indices& index, UOp valid) {
    Position p{node, valid.id(), {}};
    for (UOp i : index) p.index.push_back(i.id());
    return p;
  }

  static constexpr const RuleTable* kTables[] = {&kAlgebra, &kDivMod};

  const Graph& tensor_;
  const ReadFrom& read_from_;
  Budget* budget_;
  Budget::Held held_;  // the memo
  Graph graph_;
  Rewriter b_;
  int64_t next_range_ = 0;
  std::span<const uint32_t> level_;
  // The nodes that this kernel computes, though others read them from memory.
  absl::flat_hash_set<uint32_t> computed_;
  KernelGraph out_;
  absl::flat_hash_map<Position, UOp> memo_;
  absl::flat_hash_map<std::vector<int64_t>, UOp> folded_;
  // What nests before this one have written, and the nest.
  absl::flat_hash_map<MemoryId, UOp> written_;
};

int64_t Builder::Argument(MemoryId memory) {
  const auto it = std::ranges::find(out_.arguments, memory);
  if (it != out_.arguments.end()) return it - out_.arguments.begin();
  out_.arguments.push_back(memory);
  return static_cast<int64_t>(out_.arguments.size()) - 1;
}

UOp Builder::Address(MemoryId memory, UOp like, const Indices& index, UOp valid,
                     std::span<const UOp> after) {
  const ShapeView dims = like.shape();
  UOp flat = graph_.Index(0);
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    flat = Add(Mul(index[i], stride), flat);
    stride *= dims[i];
  }
  const int64_t n[] = {stride};
  UOp param = graph_.Param(Argument(Physical(memory)), like.dtype(), n);
  if (!after.empty()) {
    std::vector<UOp> src{param};
    src.insert(src.end(), after.begin(), after.end());
    param = graph_.Make(Op::kAfter, DType::kVoid, src);
  }
  if (valid.is_const() && valid.const_word() == 1) return graph_.Make(Op::kIndex, {param, flat});
  return graph_.Make(Op::kIndex, {param, SimplifyUnder(b_, valid, flat), valid});
}

UOp Builder::Load(uint32_t node, MemoryId memory, const Indices& index, UOp valid) {
  if (std::ranges::find(out_.reads, memory) == out_.reads.end()) {
    for (MemoryId other : out_.reads) {
      if (Physical(other) == Physical(memory)) out_.reads_several_versions = true;
    }
    out_.reads.push_back(memory);
  }
  const auto nest = written_.find(memory);
  const std::span<const UOp> after =
      nest == written_.end() ? std::span<const UOp>() : std::span(&nest->second, 1);
  return graph_.Make(Op::kLoad, {Address(memory, tensor_.at(node), index, valid, after)});
}

// Axes of `from` and `to` are cut into groups of equal product, so that axes that a reshape leaves
// alone meet no division.
Indices Builder::Reshape(ShapeView from, ShapeView to, const Indices& index) {
  Indices out(from.size(), graph_.Index(0));
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
    UOp flat = graph_.Index(0);
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

Indices Builder::Move(uint32_t node, const Indices& index, UOp* valid) {
  const UOp u = tensor_.at(node);
  const ShapeView from = u.src(0).shape();
  Indices out = index;
  switch (u.op()) {
    case Op::kReshape:
      return Reshape(from, u.shape(), index);
    case Op::kExpand:
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] == 1) out[i] = graph_.Index(0);
      }
      return out;
    case Op::kPermute:
      for (size_t i = 0; i < from.size(); ++i) out[u.arg(i)] = index[i];
      return out;
    case Op::kFlip:
      for (int64_t axis : u.arg()) {
        out[axis] = Add(Mul(index[axis], -1), graph_.Index(from[axis] - 1));
      }
      return out;
    case Op::kPad:
      for (size_t i = 0; i < from.size(); ++i) {
        const int64_t offset = u.arg(2 * i);
        if (offset == 0 && u.arg(2 * i + 1) == from[i]) continue;
        out[i] = Add(index[i], graph_.Index(-offset));
        *valid = And(*valid, InRange(out[i], from[i]));
        if (from[i] == 1) out[i] = graph_.Index(0);  // the only one that is valid
      }
      return out;
    case Op::kShrink:
      for (size_t i = 0; i < from.size(); ++i) out[i] = Add(index[i], graph_.Index(u.arg(2 * i)));
      return out;
    default:
      graph_.Fail(Internal(Name(u.op()), " is not a movement op"));
      return out;
  }
}

// `value` where `gate` holds, else 0. A load that carries the gate gives 0 by itself.
UOp Builder::ZeroOutside(UOp gate, UOp value) {
  if (gate.is_const() && gate.const_word() == 1) return value;
  if (value.is(Op::kLoad) && value.src(0).num_src() == 3) {
    const UOp loads = value.src(0).src(2);
    if (loads == And(loads, gate)) return value;
  }
  return b_.Make(Op::kWhere, {gate, value, Zero(value.dtype())});
}

std::optional<Position> Builder::StepMovement(Frame* frame, UOp* done) {
  const uint32_t node = frame->at.node;
  if (frame->values.empty()) {
    UOp valid = graph_.True();
    const Indices index = Move(node, ToIndices(frame->at), &valid);
    frame->gate = valid;
    return At(tensor_.src(node)[0], index, And(graph_.at(frame->at.valid), valid));
  }
  *done = ZeroOutside(*frame->gate, frame->values[0]);
  return std::nullopt;
}

std::optional<Position> Builder::StepElementwise(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const int next = static_cast<int>(frame->values.size());
  if (next < u.num_src()) {
    Position p{u.src(next).id(), frame->at.valid, frame->at.index};
    if (u.src(next).shape().empty()) p.index.clear();
    return p;
  }
  *done = b_.Make(u.op(), u.dtype(), frame->values, u.arg());
  return std::nullopt;
}

// Two REDUCEs of the same level never hold each other.
UOp Builder::FoldedRange(UOp reduce, const Indices& index, int64_t axis) {
  const int64_t size = reduce.src(0).shape()[axis];
  const int64_t group =
      reduce.id() < level_.size() ? level_[reduce.id()] : -1 - int64_t{reduce.id()};
  std::vector<int64_t> key{group, axis};
  for (UOp i : index) key.push_back(i.id());
  for (int64_t folded : reduce.arg().subspan(1)) {
    key.push_back(folded);
    key.push_back(reduce.src(0).shape()[folded]);
  }
  const auto [it, added] = folded_.try_emplace(std::move(key));
  if (added) it->second = NewRange(AxisType::kReduce, size);
  return it->second;
}

std::optional<Position> Builder::StepReduce(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const auto kind = static_cast<ReduceKind>(u.arg(0));
  const DType dtype = u.dtype();
  if (frame->values.empty()) {
    const Indices kept = ToIndices(frame->at);
    Indices index = kept;
    for (int64_t axis : u.arg().subspan(1)) {
      const int64_t size = u.src(0).shape()[axis];
      if (size == 0) {
        *done = graph_.ConstWord(dtype, ReduceIdentity(kind, dtype));
        return std::nullopt;
      }
      index[axis] = FoldedRange(u, kept, axis);
      if (size > 1) frame->reduce_ranges.push_back(index[axis]);
    }
    return At(u.src(0).id(), index, graph_.at(frame->at.valid));
  }
  if (frame->reduce_ranges.empty()) {
    *done = frame->values[0];
    return std::nullopt;
  }
  std::vector<UOp> src{frame->values[0]};
  src.insert(src.end(), frame->reduce_ranges.begin(), frame->reduce_ranges.end());
  const int64_t arg[] = {u.arg(0)};
  *done = graph_.Make(Op::kReduce, DType::kVoid, src, arg);
  return std::nullopt;
}

std::optional<Position> Builder::StepGather(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const UOp valid = graph_.at(frame->at.valid);
  const auto rank = static_cast<std::ptrdiff_t>(u.src(1).shape().size());
  const Indices index = ToIndices(frame->at);
  if (frame->values.empty()) {
    return At(u.src(1).id(), Indices(index.begin(), index.begin() + rank), valid);
  }
  if (frame->values.size() == 1) {
    const UOp row = b_.Make(Op::kCast, DType::kInt64, {frame->values[0]});
    frame->gate = InRange(row, u.src(0).shape()[0]);
    Indices inner{row};
    inner.insert(inner.end(), index.begin() + rank, index.end());
    return At(u.src(0).id(), inner, And(valid, *frame->gate));
  }
  *done = ZeroOutside(*frame->gate, frame->values[1]);
  return std::nullopt;
}

// Where the position lies on the axis decides; the other sources' loads are gated off.
std::optional<Position> Builder::StepCat(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const auto axis = static_cast<size_t>(u.arg(0));
  Indices index = ToIndices(frame->at);
  const UOp at = index[axis];
  if (frame->values.empty()) {
    int64_t end = 0;
    for (int i = 0; i < u.num_src(); ++i) {
      const int64_t begin = end;
      end += u.src(i).shape()[axis];
      if (begin < end && at.vmin() < end && at.vmax() >= begin) {
        frame->parts.push_back({i, begin, end});
      }
    }
    if (frame->parts.empty()) {  // no PAD around it is valid
      *done = Zero(u.dtype());
      return std::nullopt;
    }
  }
  const size_t next = frame->values.size();
  if (next < frame->parts.size()) {
    const Part& part = frame->parts[next];
    index[axis] = Add(at, graph_.Index(-part.begin));
    const UOp inside = InRange(index[axis], part.end - part.begin);
    return At(u.src(part.source).id(), index, And(graph_.at(frame->at.valid), inside));
  }
  UOp value = frame->values.back();
  for (size_t i = next - 1; i-- > 0;) {
    const UOp before = b_.Make(Op::kCmpLt, {at, graph_.Index(frame->parts[i].end)});
    value = b_.Make(Op::kWhere, {before, frame->values[i], value});
  }
  *done = value;
  return std::nullopt;
}

std::optional<Position> Builder::Step(Frame* frame, UOp* done) {
  const uint32_t node = frame->at.node;
  const Op op = tensor_.op(node);
  if (NumElements(tensor_.shape(node)) == 0) {  // reached only where no PAD is valid
    *done = Zero(tensor_.dtype(node));
    return std::nullopt;
  }
  if (!computed_.contains(node)) {
    if (const std::optional<MemoryId> memory = read_from_(node)) {
      *done = Load(node, *memory, ToIndices(frame->at), graph_.at(frame->at.valid));
      return std::nullopt;
    }
  }
  if (op == Op::kConst) {
    *done = graph_.ConstWord(tensor_.dtype(node), tensor_.arg(node)[0]);
    return std::nullopt;
  }
  if (op == Op::kIota) {
    *done = b_.Make(Op::kCast, tensor_.dtype(node), {graph_.at(frame->at.index[0])});
    return std::nullopt;
  }
  if (op == Op::kReduce) return StepReduce(frame, done);
  if (op == Op::kGather) return StepGather(frame, done);
  if (op == Op::kCat) return StepCat(frame, done);
  if (Is(op, kMovement)) return StepMovement(frame, done);
  if (op == Op::kContiguous || op == Op::kDetach) {
    if (frame->values.empty())
      return Position{tensor_.src(node)[0], frame->at.valid, frame->at.index};
    *done = frame->values[0];
    return std::nullopt;
  }
  return StepElementwise(frame, done);
}

absl::StatusOr<UOp> Builder::Evaluate(Position root) {
  std::vector<Frame> stack;
  stack.push_back({.at = std::move(root)});
  while (true) {
    TG_RETURN_IF_ERROR(graph_.status());
    UOp done;
    std::optional<Position> need = Step(&stack.back(), &done);
    if (need.has_value()) {
      const auto it = memo_.find(*need);
      if (it != memo_.end()) {
        stack.back().values.push_back(it->second);
      } else {
        TG_RETURN_IF_ERROR(budget_->SpendNodes());
        TG_RETURN_IF_ERROR(held_.Grow(BytesOf(*need)));
        stack.push_back({.at = *std::move(need)});
      }
      continue;
    }
    TG_RETURN_IF_ERROR(graph_.status());
    memo_.emplace(std::move(stack.back().at), done);
    stack.pop_back();
    if (stack.empty()) return done;
    stack.back().values.push_back(done);
  }
}

// The memory of the SCATTER holds its base. Each position of the index, in order, combines one row
// with what is there by then; the elements of a row are independent.
absl::StatusOr<UOp> Builder::ScatterStore(UOp scatter, std::vector<UOp>* ranges) {
  const UOp index = scatter.src(1), rows = scatter.src(2);
  const size_t rank = index.shape().size();
  Indices at;
  std::vector<UOp> ordered;
  for (size_t i = 0; i < rows.shape().size(); ++i) {
    const bool in_order = i < rank;
    at.push_back(NewRange(in_order ? AxisType::kReduce : AxisType::kLoop, rows.shape()[i]));
    if (rows.shape()[i] > 1) (in_order ? ordered : *ranges).push_back(at.back());
  }
  const auto split = at.begin() + static_cast<std::ptrdiff_t>(rank);
  TG_ASSIGN_OR_RETURN(UOp row, Evaluate(At(index.id(), Indices(at.begin(), split), graph_.True())));
  row = b_.Make(Op::kCast, DType::kInt64, {row});
  TG_ASSIGN_OR_RETURN(const UOp value, Evaluate(At(rows.id(), at, graph_.True())));

  Indices to{row};
  to.insert(to.end(), split, at.end());
  const UOp address = Address(scatter.id(), scatter, to, InRange(row, scatter.shape()[0]), ordered);
  out_.reads.push_back(scatter.id() | kCopyBit);
  ranges->insert(ranges->end(), ordered.begin(), ordered.end());
  const ScatterKind kind{scatter.arg(0)};
  if (kind == ScatterKind::kSet) return graph_.Make(Op::kStore, {address, value});
  return graph_.Make(Op::kStore,
                     {address, Combine(kind, graph_.Make(Op::kLoad, {address}), value)});
}

UOp Builder::Combine(ScatterKind kind, UOp old, UOp value) {
  switch (kind) {
    case ScatterKind::kSet:
      return value;
    case ScatterKind::kAdd:
      return b_.Make(Op::kAdd, {old, value});
    case ScatterKind::kMul:
      return b_.Make(Op::kMul, {old, value});
    case ScatterKind::kMax:
      return b_.Make(Op::kMax, {old, value});
    case ScatterKind::kMin:
      break;
  }
  if (!IsFloat(old.dtype())) {
    return b_.Make(Op::kWhere, {b_.Make(Op::kCmpLt, {value, old}), value, old});
  }
  const UOp x = b_.Make(Op::kNeg, {old}), y = b_.Make(Op::kNeg, {value});
  return b_.Make(Op::kNeg, {b_.Make(Op::kMax, {x, y})});
}

absl::StatusOr<UOp> Builder::StoreOutput(const KernelOutput& output, const Indices& loops) {
  const UOp value = output.value;
  const UOp shaped = output.target.valid() ? output.target : value;
  Indices index;
  size_t next = 0;
  for (int64_t size : shaped.shape()) {
    index.push_back(size == 1 ? graph_.Index(0) : loops[next++]);
  }
  // Where the element goes: into new memory, or through the target's views down to its PARAM.
  UOp valid = graph_.True(), address;
  if (output.target.valid()) {
    uint32_t node = shaped.id();
    Indices at = index;
    for (; Is(tensor_.op(node), kMovement); node = tensor_.src(node)[0]) {
      TG_RETURN_IF_ERROR(budget_->SpendSteps());
      at = Move(node, at, &valid);
    }
    address = Address(node, tensor_.at(node), at, valid);
  } else {
    address = Address(output.memory, value, index, valid);
  }
  const Indices from = value.shape().empty() ? Indices{} : index;
  UOp result;
  if (output.copy) {
    result = Load(value.id(), output.memory, from, graph_.True());
  } else {
    TG_ASSIGN_OR_RETURN(result, Evaluate(At(value.id(), from, graph_.True())));
  }
  return graph_.Make(Op::kStore, {address, result});
}

absl::StatusOr<KernelGraph> Builder::Build(const KernelRequest& request) {
  level_ = request.level;
  const KernelOutput& first = request.nests.front().outputs.front();
  if (first.value.is(Op::kScatter) && first.memory == first.value.id()) {
    computed_.insert(first.value.id());
    std::vector<UOp> ranges;
    TG_ASSIGN_OR_RETURN(const UOp store, ScatterStore(first.value, &ranges));
    return Close({store}, ranges);
  }
  std::vector<UOp> shared, all_stores, all_ends;
  for (const KernelNest& nest : request.nests) {
    computed_.clear();
    for (const KernelOutput& output : nest.outputs) {
      // Anything else is loaded where it lies in memory already.
      const bool own = !output.target.valid() && output.memory == output.value.id();
      if (own || output.computes) computed_.insert(output.value.id());
    }
    const KernelOutput& shaped = nest.outputs.front();
    Indices loops;
    std::vector<UOp> inner, stores;
    for (int64_t size : (shaped.target.valid() ? shaped.target : shaped.value).shape()) {
      if (size == 1) continue;
      const size_t loop = loops.size(), last = request.shared_loops;
      if (loop >= last) {
        inner.push_back(NewRange(AxisType::kLoop, size));
        loops.push_back(inner.back());
        continue;
      }
      const int64_t tile = loop + 1 == last ? request.shared_tile : 1;
      if (shared.size() == loop) shared.push_back(NewRange(AxisType::kLoop, size / tile));
      loops.push_back(shared[loop]);
      if (tile == 1) continue;
      inner.push_back(NewRange(AxisType::kLoop, tile));
      loops.back() = Add(Mul(shared[loop], tile), inner.back());
    }
    for (const KernelOutput& output : nest.outputs) {
      TG_ASSIGN_OR_RETURN(stores.emplace_back(), StoreOutput(output, loops));
    }
    TG_RETURN_IF_ERROR(graph_.status());
    inner = LoopOrder(stores, std::move(inner));
    if (request.nests.size() == 1) return Close(stores, inner);
    for (size_t i = 0; i < stores.size(); ++i) {
      const KernelOutput& output = nest.outputs[i];
      const UOp end = End(stores[i], inner);
      written_.emplace(output.target.valid() ? output.value.id() : output.memory, end);
      all_stores.push_back(stores[i]);
      all_ends.push_back(End(end, shared));
    }
  }
  return Finish(all_stores, all_ends);
}

std::vector<UOp> Builder::LoopOrder(const std::vector<UOp>& stores, std::vector<UOp> ranges) const {
  constexpr size_t kMaxLoops = 64;
  if (ranges.size() > kMaxLoops) return ranges;
  std::vector<uint64_t> depends(graph_.size(), 0);
  for (size_t i = 0; i < ranges.size(); ++i) depends[ranges[i].id()] = uint64_t{1} << i;
  const uint64_t all =
      ranges.size() == kMaxLoops ? ~uint64_t{0} : (uint64_t{1} << ranges.size()) - 1;
  std::vector<bool> live(graph_.size(), false);
  for (UOp store : stores) live[store.id()] = true;
  for (uint32_t id = static_cast<uint32_t>(graph_.size()); id-- > 0;) {
    for (uint32_t s : graph_.src(id)) live[s] = live[s] || live[id];
  }
  std::vector<int> reductions(ranges.size(), 0);  // that depend on the loop, but not on all
  for (uint32_t id = 0; id < graph_.size(); ++id) {
    for (uint32_t s : graph_.src(id)) depends[id] |= depends[s];
    if (graph_.op(id) != Op::kReduce || !live[id] || depends[id] == all) continue;
    for (size_t i = 0; i < ranges.size(); ++i) reductions[i] += depends[id] >> i & 1;
  }
  std::vector<size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>{}, [&](size_t i) { return reductions[i]; });
  std::vector<UOp> ordered;
  for (size_t i : order) ordered.push_back(ranges[i]);
  return ordered;
}

UOp Builder::End(UOp effect, std::span<const UOp> ranges) {
  if (ranges.empty()) return effect;
  std::vector<UOp> src{effect};
  src.insert(src.end(), ranges.begin(), ranges.end());
  return graph_.Make(Op::kEnd, DType::kVoid, src);
}

absl::StatusOr<KernelGraph> Builder::Close(const std::vector<UOp>& stores,
                                           std::span<const UOp> ranges) {
  std::vector<UOp> ends;
  for (const UOp store : stores) ends.push_back(End(store, ranges));
  return Finish(stores, ends);
}

absl::StatusOr<KernelGraph> Builder::Finish(const std::vector<UOp>& stores,
                                            const std::vector<UOp>& ends) {
  TG_RETURN_IF_ERROR(graph_.status());
  const UOp sink = graph_.Make(Op::kSink, DType::kVoid, ends);
  TG_RETURN_IF_ERROR(graph_.status());

  for (const uint32_t id : PostOrder(sink)) {
    const UOp u = graph_.at(id);
    if (!u.is(Op::kLoad)) continue;
    for (const UOp store : stores) {
      const UOp address = store.src(0);
      if (u.src(0).src(0) == address.src(0) && u.src(0) != address) {
        out_.reads_target_elsewhere = true;
      }
    }
  }
  out_.graph = FreezeLive(sink);
  return std::move(out_);
}

// Simplification may have removed every use of an argument: the others close up.
FrozenGraph Builder::FreezeLive(UOp sink) {
  const std::vector<uint32_t> order = PostOrder(sink);
  std::vector<bool> live(out_.arguments.size(), false);
  for (uint32_t id : order) {
    if (graph_.op(id) == Op::kParam) live[graph_.arg(id)[0]] = true;
  }
  std::vector<int64_t> slot(live.size());
  std::vector<MemoryId> kept;
  for (size_t i = 0; i < live.size(); ++i) {
    slot[i] = static_cast<int64_t>(kept.size());
    if (live[i]) kept.push_back(out_.arguments[i]);
  }
  out_.arguments = std::move(kept);
  std::erase_if(out_.reads, [&](MemoryId read) {
    return std::ranges::find(out_.arguments, Physical(read)) == out_.arguments.end();
  });
  auto frozen = std::make_shared<Graph>();
  NodeMap<uint32_t> copied(graph_);
  std::vector<UOp> src;
  for (uint32_t id : order) {
    src.clear();
    for (uint32_t s : graph_.src(id)) src.push_back(frozen->at(copied[s]));
    std::vector<int64_t> arg(graph_.arg(id).begin(), graph_.arg(id).end());
    if (graph_.op(id) == Op::kParam) arg[0] = slot[arg[0]];
    copied[id] = frozen->Make(graph_.op(id), graph_.dtype(id), src, arg).id();
  }
  return {std::move(frozen), copied[sink]};
}

}  // namespace

absl::StatusOr<KernelGraph> BuildKernel(const KernelRequest& request, const ReadFrom& read_from,
                                        Budget* budget) {
  return Builder(*request.nests.front().outputs.front().value.graph(), read_from, budget)
      .Build(request);
}

}  // namespace telegrad
