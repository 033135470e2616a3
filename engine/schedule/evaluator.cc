#include "engine/schedule/evaluator.h"

#include <algorithm>
#include <limits>

#include "engine/rules/facts.h"

namespace telegrad {

Evaluator::Evaluator(const Graph& tensor, const ReadFrom& read_from,
                     std::span<const uint32_t> level, Budget* budget)
    : tensor_(tensor),
      read_from_(read_from),
      level_(level),
      budget_(budget),
      held_(budget),
      b_(&graph_, kTables, budget) {
  graph_.LimitSize(budget);
}

Position Evaluator::At(uint32_t node, const Indices& index, UOp valid) {
  Position p{node, valid.id(), {}};
  for (UOp i : index) p.index.push_back(i.id());
  return p;
}

MemoryId Evaluator::Physical(MemoryId memory) const {
  if (const auto in = lies_in_.find(memory); in != lies_in_.end()) return in->second;
  const Op op = tensor_.op(memory & ~kCopyBit);
  const bool copy = (memory & kCopyBit) != 0;
  if (!copy && op == Op::kAfter) return tensor_.src(memory)[0];
  return copy && op == Op::kScatter ? memory & ~kCopyBit : memory;
}

int64_t Evaluator::Argument(MemoryId memory) {
  const auto it = std::ranges::find(arguments_, memory);
  if (it != arguments_.end()) return it - arguments_.begin();
  arguments_.push_back(memory);
  return static_cast<int64_t>(arguments_.size()) - 1;
}

UOp Evaluator::Address(MemoryId memory, UOp like, const Indices& index, UOp valid,
                       std::span<const UOp> after) {
  UOp param, flat;
  if (const auto kept = private_.find(memory); kept != private_.end()) {
    param = PrivateMemory(kept->second, like, index, &flat);
  } else {
    flat = FlatIndex(b_, like.shape(), index);
    const int64_t n[] = {NumElements(like.shape())};
    param = graph_.Param(Argument(Physical(memory)), like.dtype(), n);
  }
  if (!after.empty()) {
    std::vector<UOp> src{param};
    src.insert(src.end(), after.begin(), after.end());
    param = graph_.Make(Op::kAfter, DType::kVoid, src);
  }
  if (valid.is_const() && valid.const_word() == 1) return graph_.Make(Op::kIndex, {param, flat});
  return graph_.Make(Op::kIndex, {param, SimplifyUnder(b_, valid, flat), valid});
}

UOp Evaluator::PrivateMemory(int64_t slot, UOp like, const Indices& index, UOp* flat) {
  Shape shape;
  Indices at;
  UOp row;
  size_t shared = 0;
  for (size_t axis = 0; axis < like.shape().size(); ++axis) {
    if (like.shape()[axis] == 1) continue;
    if (shared < shared_.loops.size()) {
      if (++shared == shared_.loops.size() && shared_.tile > 1) {
        row = index[axis] == shared_.row ? shared_.inner
                                         : b_.Make(Op::kSub, {index[axis], shared_.first});
      }
      continue;
    }
    shape.push_back(like.shape()[axis]);
    at.push_back(index[axis]);
  }
  if (row.valid()) {
    shape.push_back(shared_.tile);
    at.push_back(row);
  }
  *flat = FlatIndex(b_, shape, at);
  const UOp buffer =
      graph_.Make(Op::kBuffer, like.dtype(), {},
                  {static_cast<int64_t>(AddressSpace::kRegister), slot, NumElements(shape)});
  std::vector<UOp> src{buffer};
  for (UOp loop : shared_.loops) {
    if (loop.is(Op::kRange)) src.push_back(loop);
  }
  return src.size() == 1 ? buffer : graph_.Make(Op::kAfter, DType::kVoid, src);
}

UOp Evaluator::Load(uint32_t node, MemoryId memory, const Indices& index, UOp valid) {
  if (std::ranges::find(reads_, memory) == reads_.end()) {
    for (MemoryId other : reads_) {
      if (Physical(other) == Physical(memory)) reads_several_versions_ = true;
    }
    reads_.push_back(memory);
  }
  const auto nest = written_.find(memory);
  const std::span<const UOp> after =
      nest == written_.end() ? std::span<const UOp>() : std::span(&nest->second, 1);
  const UOp load = graph_.Make(Op::kLoad, {Address(memory, tensor_.at(node), index, valid, after)});
  return WithinBounds(tensor_.at(node), load);
}

// A number by which loops may end: what is known of it where it is computed is known where it is
// loaded, too.
UOp Evaluator::WithinBounds(UOp computed, UOp load) {
  if (computed.dtype() != DType::kInt64 || !computed.shape().empty()) return load;
  constexpr int64_t kFar = std::numeric_limits<int32_t>::max();
  const int64_t least = computed.vmin(), most = computed.vmax();
  if (least < 0 || most > kFar) return load;
  const auto negative = [&](UOp u) { return b_.Make(Op::kMul, {u, graph_.Index(-1)}); };
  const UOp low = b_.Make(Op::kMax, {load, graph_.Index(least)});
  return negative(b_.Make(Op::kMax, {negative(low), graph_.Index(-most)}));
}

// `value` where `gate` holds, else 0. A load that carries the gate gives 0 by itself.
UOp Evaluator::ZeroOutside(UOp gate, UOp value) {
  if (gate.is_const() && gate.const_word() == 1) return value;
  if (value.is(Op::kLoad) && value.src(0).num_src() == 3) {
    const UOp loads = value.src(0).src(2);
    if (loads == And(loads, gate)) return value;
  }
  return b_.Make(Op::kWhere, {gate, value, Zero(value.dtype())});
}

std::optional<Position> Evaluator::StepMovement(Frame* frame, UOp* done) {
  const uint32_t node = frame->at.node;
  if (frame->values.empty()) {
    UOp valid = graph_.True();
    const Indices index = SourceIndices(b_, tensor_.at(node), ToIndices(frame->at), &valid);
    frame->gate = valid;
    return At(tensor_.src(node)[0], index, And(graph_.at(frame->at.valid), valid));
  }
  *done = ZeroOutside(*frame->gate, frame->values[0]);
  return std::nullopt;
}

std::optional<Position> Evaluator::StepElementwise(Frame* frame, UOp* done) {
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
UOp Evaluator::FoldedRange(UOp reduce, const Indices& index, int64_t axis) {
  const int64_t size = reduce.src(0).shape()[axis];
  const int64_t group =
      reduce.id() < level_.size() ? level_[reduce.id()] : -1 - int64_t{reduce.id()};
  std::vector<int64_t> key{group, axis};
  for (UOp i : index) key.push_back(i.id());
  for (int64_t folded : reduce.reduced_axes()) {
    key.push_back(folded);
    key.push_back(reduce.src(0).shape()[folded]);
  }
  const auto [it, added] = folded_.try_emplace(std::move(key));
  if (added) it->second = NewRange(AxisType::kReduce, size);
  return it->second;
}

std::optional<Position> Evaluator::StepReduce(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const auto kind = u.reduce_kind();
  const DType dtype = u.dtype();
  if (frame->values.empty()) {
    const Indices kept = ToIndices(frame->at);
    Indices index = kept;
    for (int64_t axis : u.reduced_axes()) {
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
  const int64_t arg[] = {ToWord(u.reduce_kind())};
  *done = graph_.Make(Op::kReduce, DType::kVoid, src, arg);
  return std::nullopt;
}

std::optional<Position> Evaluator::StepGather(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const UOp valid = graph_.at(frame->at.valid);
  const auto rank = static_cast<std::ptrdiff_t>(u.src(1).shape().size());
  const Indices index = ToIndices(frame->at);
  if (frame->values.empty()) {
    return At(u.src(1).id(), Indices(index.begin(), index.begin() + rank), valid);
  }
  if (frame->values.size() == 1) {
    const UOp row = b_.Make(Op::kCast, DType::kInt64, {frame->values[0]});
    frame->gate = InRange(b_, row, u.src(0).shape()[0]);
    Indices inner{row};
    inner.insert(inner.end(), index.begin() + rank, index.end());
    return At(u.src(0).id(), inner, And(valid, *frame->gate));
  }
  *done = ZeroOutside(*frame->gate, frame->values[1]);
  return std::nullopt;
}

// Where the position lies on the axis decides; the other sources' loads are gated off.
std::optional<Position> Evaluator::StepCat(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const auto axis = static_cast<size_t>(u.axis());
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
    const UOp inside = InRange(b_, index[axis], part.end - part.begin);
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

std::optional<Position> Evaluator::Step(Frame* frame, UOp* done) {
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
    *done = graph_.ConstWord(tensor_.dtype(node), tensor_.at(node).const_word());
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

absl::StatusOr<UOp> Evaluator::Evaluate(Position root) {
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

}  // namespace telegrad
