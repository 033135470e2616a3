#include "engine/schedule/index_form.h"

#include <algorithm>

#include "engine/ir/scalar.h"
#include "engine/types/limits.h"

namespace telegrad {
namespace {

// Places that one element may depend on. Index arithmetic has some dozens.
constexpr int kMaxPlaces = 2000;
constexpr uint32_t kLarge = 1 << 17;
constexpr int kMaxCasts = 8;
// Sums of sums, all of them: where casts share terms there are more ways through them than nodes.
constexpr int kMaxWidening = 512;

// The values of `x` are in the integer type `to`, so that a cast keeps them.
bool Keeps(DType to, UOp x) {
  if (!IsInt(x.dtype()) || !x.bounds().known()) return false;
  return ScalarFromInt(to, x.vmin()) == x.vmin() && ScalarFromInt(to, x.vmax()) == x.vmax() &&
         to != DType::kUInt64;
}

// A constant, or one RANGE with an offset.
bool IsInPlace(UOp index) {
  const std::optional<Linear> sum = Linear::Of(index);
  return sum &&
         (sum->is_constant() || (sum->terms().size() == 1 && sum->terms()[0].atom.is(Op::kRange) &&
                                 std::abs(sum->terms()[0].coefficient) == 1));
}

}  // namespace

IndexForm::IndexForm(const Graph& tensor, const TensorFacts& facts, Budget* budget)
    : tensor_(tensor), facts_(facts), budget_(budget), b_(&graph_, kTables, budget) {
  graph_.LimitSize(budget);
}

bool IndexForm::large() const {
  return graph_.size() > kLarge || leaves_.size() > kMaxParams / 2 || memo_.size() > kLarge;
}

Indices IndexForm::Everywhere(ShapeView dims) {
  Indices out;
  for (size_t d = 0; d < dims.size(); ++d) {
    out.push_back(dims[d] == 1 ? graph_.Index(0)
                               : graph_.Range(static_cast<int64_t>(d), AxisType::kLoop,
                                              graph_.Index(dims[d])));
  }
  return out;
}

Indices IndexForm::ToIndices(const Leaf& at) const {
  Indices out;
  for (uint32_t id : at.index) out.push_back(graph_.at(id));
  return out;
}

UOp IndexForm::MakeLeaf(Leaf leaf) {
  for (size_t i = 0; i < leaf.index.size(); ++i) {
    if (!facts_.varies(leaf.node, i)) leaf.index[i] = graph_.Index(0).id();
  }
  const DType dtype = tensor_.dtype(leaf.node);
  const auto [it, added] = numbers_.try_emplace(std::move(leaf), leaves_.size());
  if (added) leaves_.push_back(it->first);
  return graph_.Param(it->second, dtype, {});
}

std::optional<IndexForm::Leaf> IndexForm::Step(Frame* frame, UOp* done) {
  const UOp u = tensor_.at(frame->at.node);
  const Op op = u.op();
  const auto finished = [&](UOp value) {
    *done = value;
    return std::nullopt;
  };
  const auto source = [&](int i, std::vector<uint32_t> index) {
    if (u.src(i).shape().empty()) index.clear();
    return Leaf{u.src(i).id(), std::move(index)};
  };
  if (NumElements(u.shape()) == 0) {  // never read; its reshapes say nothing of positions
    return finished(graph_.ConstWord(u.dtype(), ScalarFromMemory(u.dtype(), 0)));
  }
  if (op == Op::kConst) return finished(graph_.ConstWord(u.dtype(), u.const_word()));
  if (op == Op::kIota) {
    return finished(b_.Make(Op::kCast, u.dtype(), {graph_.at(frame->at.index[0])}));
  }
  if (Is(op, kMovement)) {
    if (frame->values.empty()) {
      frame->gate = graph_.True();
      const Indices index = ToIndices(frame->at);
      const Indices moved = SourceIndices(b_, u, index, &frame->gate);
      const bool opens = facts_.by_place(u.id());
      if (!opens && std::ranges::all_of(index, IsInPlace) &&
          !std::ranges::all_of(moved, IsInPlace)) {
        return finished(MakeLeaf(frame->at));
      }
      Leaf next{u.src(0).id(), {}};
      for (UOp i : moved) next.index.push_back(i.id());
      return next;
    }
    const UOp zero = graph_.ConstWord(u.dtype(), ScalarFromMemory(u.dtype(), 0));
    return finished(b_.Make(Op::kWhere, {frame->gate, frame->values[0], zero}));
  }
  if (!facts_.by_place(u.id())) return finished(MakeLeaf(frame->at));
  const auto next = static_cast<int>(frame->values.size());
  if (next < u.num_src()) return source(next, frame->at.index);
  if (!Is(op, kAlu)) return finished(frame->values[0]);  // CONTIGUOUS, DETACH
  return finished(b_.Make(op, u.dtype(), frame->values, u.arg()));
}

absl::StatusOr<UOp> IndexForm::ElementOf(UOp node, const Indices& index) {
  std::vector<Frame> stack;
  Leaf root{node.id(), {}};
  for (UOp i : index) root.index.push_back(i.id());
  stack.push_back({std::move(root), {}, {}});
  for (int places = 1;;) {
    TG_RETURN_IF_ERROR(graph_.status());
    UOp done;
    std::optional<Leaf> need = Step(&stack.back(), &done);
    TG_RETURN_IF_ERROR(graph_.status());
    if (need.has_value()) {
      if (const auto it = memo_.find(*need); it != memo_.end()) {
        stack.back().values.push_back(it->second);
        continue;
      }
      if (++places > kMaxPlaces) return UOp();
      TG_RETURN_IF_ERROR(budget_->SpendSteps());
      stack.push_back({*std::move(need), {}, {}});
      continue;
    }
    memo_.emplace(std::move(stack.back().at), done);
    stack.pop_back();
    if (stack.empty()) return done;
    stack.back().values.push_back(done);
  }
}

uint32_t IndexForm::Axes(UOp u) {
  // Sources and leaf indices have smaller ids, so a sweep reaches them first.
  while (axes_.size() <= u.id()) {
    const UOp n = graph_.at(static_cast<uint32_t>(axes_.size()));
    uint32_t bits = 0;
    if (n.is(Op::kRange)) bits = uint32_t{1} << n.range_id();
    for (uint32_t s : n.src_ids()) bits |= axes_[s];
    if (is_leaf(n)) {
      for (uint32_t i : leaf(n).index) bits |= axes_[i];
    }
    axes_.push_back(bits);
  }
  return axes_[u.id()];
}

std::vector<UOp> IndexForm::Cone(UOp root) const {
  absl::flat_hash_map<uint32_t, bool> seen{{root.id(), true}};
  std::vector<uint32_t> ids{root.id()};
  for (size_t i = 0; i < ids.size(); ++i) {
    const UOp u = graph_.at(ids[i]);
    const auto visit = [&](std::span<const uint32_t> sources) {
      for (uint32_t s : sources) {
        if (seen.emplace(s, true).second) ids.push_back(s);
      }
    };
    visit(u.src_ids());
    if (is_leaf(u)) visit(leaf(u).index);
  }
  std::ranges::sort(ids);
  std::vector<UOp> out;
  for (uint32_t id : ids) out.push_back(graph_.at(id));
  return out;
}

UOp IndexForm::Replace(UOp root, std::span<const std::pair<UOp, UOp>> from) {
  absl::flat_hash_map<uint32_t, UOp> now;
  for (const auto& [old, replacement] : from) now.emplace(old.id(), replacement);
  std::vector<UOp> src;
  const std::vector<UOp> cone = Cone(root);
  if (absl::Status s = budget_->SpendSteps(static_cast<int64_t>(cone.size())); !s.ok()) {
    return graph_.Fail(std::move(s));
  }
  for (const UOp u : cone) {
    if (now.contains(u.id())) continue;
    bool changed = false;
    const auto find = [&](uint32_t id) {
      const UOp s = now.at(id);
      changed = changed || s.id() != id;
      return s;
    };
    UOp made = u;
    if (is_leaf(u)) {
      Leaf moved{leaf(u).node, {}};
      for (uint32_t i : leaf(u).index) moved.index.push_back(find(i).id());
      if (changed) made = MakeLeaf(std::move(moved));
    } else {
      src.clear();
      for (uint32_t s : u.src_ids()) src.push_back(find(s));
      const std::vector<int64_t> arg(u.arg().begin(), u.arg().end());
      if (changed) made = b_.Make(u.op(), u.dtype(), src, arg);
    }
    if (!made.valid()) return made;
    now.emplace(u.id(), made);
  }
  return now.at(root.id());
}

bool IndexForm::AddWidened(UOp u, int64_t factor, int depth, Linear* out, bool* exact) {
  const DType dtype = u.dtype();
  if (!IsInt(dtype) || --widening_ < 0) return false;
  if (u.is(Op::kCast) && depth < kMaxCasts && Keeps(dtype, u.src(0))) {
    return AddWidened(u.src(0), factor, depth + 1, out, exact);
  }
  if (IsSigned(dtype)) {
    const std::optional<Linear> sum = Linear::Of(u);
    const bool fits = sum && sum->Range();
    if (fits || (sum && dtype == DType::kInt64)) {
      *exact = *exact && fits;
      if (!out->AddConstant(sum->constant(), factor)) return false;
      for (const auto& [atom, coefficient] : sum->terms()) {
        int64_t scaled;
        if (__builtin_mul_overflow(coefficient, factor, &scaled)) return false;
        const bool casts = atom.is(Op::kCast) && depth < kMaxCasts && Keeps(dtype, atom.src(0));
        if (casts) {
          if (!AddWidened(atom.src(0), scaled, depth + 1, out, exact)) return false;
        } else if (!AddAtom(atom, scaled, out)) {
          return false;
        }
      }
      return true;
    }
  } else if (dtype == DType::kUInt64 && !Keeps(DType::kInt64, u)) {
    *exact = false;
  }
  return AddAtom(u, factor, out);
}

bool IndexForm::AddAtom(UOp u, int64_t factor, Linear* out) {
  const UOp wide = b_.Make(Op::kCast, DType::kInt64, {u});
  return wide.valid() && out->AddTerm(wide, factor);
}

std::optional<Linear> IndexForm::Widened(UOp u, bool* exact) {
  Linear out(DType::kInt64);
  widening_ = kMaxWidening;
  if (!AddWidened(u, 1, 0, &out, exact)) return std::nullopt;
  return out;
}

}  // namespace telegrad
