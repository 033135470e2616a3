// Nests around expressions: where each output goes, which loops are shared, which come first.
#include "engine/schedule/kernel_builder.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/schedule/evaluator.h"

namespace telegrad {
namespace {

class Builder {
 public:
  Builder(const Graph& tensor, const ReadFrom& read_from, const KernelRequest& request,
          Budget* budget)
      : tensor_(tensor),
        budget_(budget),
        e_(tensor, read_from, request.level, budget),
        graph_(e_.graph()) {}

  absl::StatusOr<KernelGraph> Build(const KernelRequest& request);

 private:
  // The STORE of an output, over the loops.
  absl::StatusOr<UOp> StoreOutput(const KernelOutput& output, const Indices& loops);
  // The kernel that is `stores` for all values of `ranges`.
  absl::StatusOr<KernelGraph> Close(const std::vector<UOp>& stores, std::span<const UOp> ranges);
  absl::StatusOr<KernelGraph> Finish(const std::vector<UOp>& stores, const std::vector<UOp>& ends);
  UOp End(UOp effect, std::span<const UOp> ranges);
  // The order in which every reduction is reduced as seldom as it can be.
  std::vector<UOp> LoopOrder(const std::vector<UOp>& stores, std::vector<UOp> ranges) const;
  FrozenGraph FreezeLive(UOp sink);
  // The store of a SCATTER's rows; its ranges go to `*ranges`.
  absl::StatusOr<UOp> ScatterStore(UOp scatter, std::vector<UOp>* ranges);
  UOp Combine(ScatterKind kind, UOp old, UOp value);

  const Graph& tensor_;
  Budget* budget_;
  Evaluator e_;
  Graph& graph_;             // the evaluator's
  bool moved_back_ = false;  // the last tile of the shared loops
  KernelGraph out_;
};

// The memory of the SCATTER holds its base. Each position of the index, in order, combines one row
// with what is there by then; the elements of a row are independent.
absl::StatusOr<UOp> Builder::ScatterStore(UOp scatter, std::vector<UOp>* ranges) {
  const UOp index = scatter.src(1), rows = scatter.src(2);
  const size_t rank = index.shape().size();
  Indices at;
  std::vector<UOp> ordered;
  for (size_t i = 0; i < rows.shape().size(); ++i) {
    const bool in_order = i < rank;
    at.push_back(e_.NewRange(in_order ? AxisType::kReduce : AxisType::kLoop, rows.shape()[i]));
    if (rows.shape()[i] > 1) (in_order ? ordered : *ranges).push_back(at.back());
  }
  const auto split = at.begin() + static_cast<std::ptrdiff_t>(rank);
  TG_ASSIGN_OR_RETURN(
      UOp row, e_.Evaluate(Evaluator::At(index.id(), Indices(at.begin(), split), graph_.True())));
  row = e_.rewriter().Make(Op::kCast, DType::kInt64, {row});
  TG_ASSIGN_OR_RETURN(const UOp value, e_.Evaluate(Evaluator::At(rows.id(), at, graph_.True())));

  Indices to{row};
  to.insert(to.end(), split, at.end());
  const UOp address = e_.Address(scatter.id(), scatter, to,
                                 InRange(e_.rewriter(), row, scatter.shape()[0]), ordered);
  e_.reads().push_back(scatter.id() | kCopyBit);
  ranges->insert(ranges->end(), ordered.begin(), ordered.end());
  const ScatterKind kind = scatter.scatter_kind();
  if (kind == ScatterKind::kSet) return graph_.Make(Op::kStore, {address, value});
  return graph_.Make(Op::kStore,
                     {address, Combine(kind, graph_.Make(Op::kLoad, {address}), value)});
}

UOp Builder::Combine(ScatterKind kind, UOp old, UOp value) {
  switch (kind) {
    case ScatterKind::kSet:
      return value;
    case ScatterKind::kAdd:
      return e_.rewriter().Make(Op::kAdd, {old, value});
    case ScatterKind::kMul:
      return e_.rewriter().Make(Op::kMul, {old, value});
    case ScatterKind::kMax:
      return e_.rewriter().Make(Op::kMax, {old, value});
    case ScatterKind::kMin:
      break;
  }
  if (!IsFloat(old.dtype())) {
    return e_.rewriter().Make(Op::kWhere,
                              {e_.rewriter().Make(Op::kCmpLt, {value, old}), value, old});
  }
  const UOp x = e_.rewriter().Make(Op::kNeg, {old}), y = e_.rewriter().Make(Op::kNeg, {value});
  return e_.rewriter().Make(Op::kNeg, {e_.rewriter().Make(Op::kMax, {x, y})});
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
      at = SourceIndices(e_.rewriter(), tensor_.at(node), at, &valid);
    }
    address = e_.Address(node, tensor_.at(node), at, valid);
  } else {
    address = e_.Address(output.memory, value, index, valid);
  }
  const Indices from = value.shape().empty() ? Indices{} : index;
  UOp result;
  if (output.copy) {
    result = e_.Load(value.id(), output.memory, from, graph_.True());
  } else {
    TG_ASSIGN_OR_RETURN(result, e_.Evaluate(Evaluator::At(value.id(), from, graph_.True())));
  }
  return graph_.Make(Op::kStore, {address, result});
}

absl::StatusOr<KernelGraph> Builder::Build(const KernelRequest& request) {
  const KernelOutput& first = request.nests.front().outputs.front();
  if (first.value.is(Op::kScatter) && first.memory == first.value.id()) {
    e_.Compute({first.value.id()});
    std::vector<UOp> ranges;
    TG_ASSIGN_OR_RETURN(const UOp store, ScatterStore(first.value, &ranges));
    return Close({store}, ranges);
  }
  std::vector<UOp> shared, all_stores, all_ends;
  for (const MemoryId memory : request.kept) e_.KeepPrivate(memory);
  for (const KernelNest& nest : request.nests) {
    absl::flat_hash_set<uint32_t> computed;
    for (const KernelOutput& output : nest.outputs) {
      // Anything else is loaded where it lies in memory already.
      const bool own = !output.target.valid() && output.memory == output.value.id();
      if (own || output.computes) computed.insert(output.value.id());
    }
    e_.Compute(std::move(computed));
    const KernelOutput& shaped = nest.outputs.front();
    Indices loops;
    std::vector<UOp> inner, stores;
    Evaluator::Shared tiled{.tile = request.shared_tile};
    for (int64_t size : (shaped.target.valid() ? shaped.target : shaped.value).shape()) {
      if (size == 1) continue;
      const size_t loop = loops.size(), last = request.shared_loops;
      if (loop >= last) {
        inner.push_back(e_.NewRange(AxisType::kLoop, size));
        loops.push_back(inner.back());
        continue;
      }
      const int64_t tile = loop + 1 == last ? request.shared_tile : 1;
      if (shared.size() == loop) {
        shared.push_back(e_.NewRange(AxisType::kLoop, (size + tile - 1) / tile));
      }
      loops.push_back(shared[loop]);
      if (tile == 1) continue;
      inner.push_back(e_.NewRange(AxisType::kLoop, tile));
      Rewriter& b = e_.rewriter();
      tiled.first = b.Make(Op::kMul, {shared[loop], graph_.Index(tile)});
      if (size % tile != 0) {  // min(first, size - tile)
        moved_back_ = true;
        const UOp back = b.Make(Op::kMul, {shared[loop], graph_.Index(-tile)});
        const UOp least = b.Make(Op::kMax, {back, graph_.Index(tile - size)});
        tiled.first = b.Make(Op::kMul, {least, graph_.Index(-1)});
      }
      tiled.inner = inner.back();
      loops.back() = tiled.row = b.Make(Op::kAdd, {tiled.first, tiled.inner});
    }
    tiled.loops = shared;
    e_.Share(std::move(tiled));
    for (const KernelOutput& output : nest.outputs) {
      TG_ASSIGN_OR_RETURN(stores.emplace_back(), StoreOutput(output, loops));
    }
    TG_RETURN_IF_ERROR(graph_.status());
    inner = LoopOrder(stores, std::move(inner));
    if (request.nests.size() == 1) return Close(stores, inner);
    for (size_t i = 0; i < stores.size(); ++i) {
      const KernelOutput& output = nest.outputs[i];
      const UOp end = End(stores[i], inner);
      std::vector<UOp> around;
      std::ranges::copy_if(shared, std::back_inserter(around),
                           [](UOp loop) { return loop.is(Op::kRange); });
      e_.Written(output.target.valid() ? output.value.id() : output.memory, end);
      if (output.computes) {  // later nests read the value from the target
        UOp param = output.target;
        while (param.is(Op::kReshape)) param = param.src(0);
        e_.LiesIn(output.value.id(), param.id());
      }
      all_stores.push_back(stores[i]);
      all_ends.push_back(End(end, around));
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
      // A tile that is moved back computes some elements again.
      const bool once = u.src(0) == address && !moved_back_;
      if (u.src(0).src(0) == address.src(0) && !once) {
        out_.reads_target_elsewhere = true;
      }
    }
  }
  out_.graph = FreezeLive(sink);
  out_.arguments = std::move(e_.arguments());
  out_.reads = std::move(e_.reads());
  out_.reads_several_versions = e_.reads_several_versions();
  return std::move(out_);
}

// Simplification may have removed every use of an argument: the others close up.
FrozenGraph Builder::FreezeLive(UOp sink) {
  const std::vector<uint32_t> order = PostOrder(sink);
  std::vector<bool> live(e_.arguments().size(), false);
  for (uint32_t id : order) {
    if (graph_.op(id) == Op::kParam) live[graph_.at(id).slot()] = true;
  }
  std::vector<int64_t> slot(live.size());
  std::vector<MemoryId> kept;
  for (size_t i = 0; i < live.size(); ++i) {
    slot[i] = static_cast<int64_t>(kept.size());
    if (live[i]) kept.push_back(e_.arguments()[i]);
  }
  e_.arguments() = std::move(kept);
  std::erase_if(e_.reads(), [&](MemoryId read) {
    return std::ranges::find(e_.arguments(), e_.Physical(read)) == e_.arguments().end();
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
  const Graph& tensor = *request.nests.front().outputs.front().value.graph();
  return Builder(tensor, read_from, request, budget).Build(request);
}

}  // namespace telegrad
