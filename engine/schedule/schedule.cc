// From a fusion plan to an ordered list of kernels.
//
// A kernel either computes a materialized value into memory or performs one STORE. Order follows
// from three kinds of edges: a reader of a stored value runs after its writer; a reader of AFTER(p,
// stores) runs after those stores; and a STORE runs after every kernel that reads the version of
// its buffer that it overwrites. A kernel may overwrite what it reads itself only at the very
// element it has read. Where that does not hold, or where the edges form a cycle (two buffers
// swapped), the STORE computes into a temporary first.
#include "engine/schedule/schedule.h"

#include <algorithm>
#include <optional>
#include <queue>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/schedule/fusion.h"
#include "engine/schedule/kernel_builder.h"
#include "engine/schedule/memory_plan.h"

namespace telegrad {
namespace {

struct Item {
  MemoryId writes = 0;  // the memory that it fills, or the STORE that it performs
  std::string reason;
  KernelGraph kernel;
};

// What a cycle asks for; each step rebuilds the kernels.
enum class Caution { kNone, kSplitStores, kSnapshotParams };

class Scheduler {
 public:
  Scheduler(UOp sink, Caution caution, Budget* budget)
      : graph_(*sink.graph()), caution_(caution), budget_(budget), fusion_(PlanFusion(sink)) {}

  // nullopt: the kernels form a cycle.
  absl::StatusOr<std::optional<Schedule>> Run() {
    CountUses();
    if (caution_ == Caution::kSnapshotParams) TG_RETURN_IF_ERROR(TakeSnapshots());
    TG_RETURN_IF_ERROR(CollectItems());
    const std::vector<size_t> order = Order();
    if (order.size() < items_.size()) return std::nullopt;
    return Emit(order);
  }

 private:
  void CountUses() {
    for (uint32_t id : fusion_.order) {
      for (uint32_t s : graph_.src(id)) ++uses_[s];
    }
  }

  std::optional<MemoryId> ReadFromMemory(uint32_t node) const {
    const Op op = graph_.op(node);
    if (op == Op::kParam) return snapshots_.contains(node) ? node | kCopyBit : node;
    if (op == Op::kAfter || fusion_.materialized(node)) return node;
    return std::nullopt;
  }

  absl::Status AddItem(const KernelRequest& request, MemoryId writes, std::string_view reason) {
    TG_RETURN_IF_ERROR(budget_->SpendKernels());
    const ReadFrom read_from = [this](uint32_t node) { return ReadFromMemory(node); };
    TG_ASSIGN_OR_RETURN(KernelGraph kernel, BuildKernel(request, read_from, budget_));
    items_.push_back({writes, std::string(reason), std::move(kernel)});
    return absl::OkStatus();
  }

  // Copies every PARAM that is read both before and after a STORE to it.
  absl::Status TakeSnapshots() {
    for (uint32_t id : fusion_.order) {
      const UOp u = graph_.at(id);
      if (!u.is(Op::kAfter) || snapshots_.contains(u.src(0).id())) continue;
      const UOp param = u.src(0);
      const MemoryId copy = param.id() | kCopyBit;
      TG_RETURN_IF_ERROR(
          AddItem({param, {}, copy, false}, copy, "copies a param before its store"));
      snapshots_.insert(param.id());
    }
    return absl::OkStatus();
  }

  absl::Status CollectItems() {
    for (uint32_t id : fusion_.order) {
      const UOp u = graph_.at(id);
      if (u.is(Op::kStore)) {
        TG_RETURN_IF_ERROR(AddStore(u));
      } else if (fusion_.materialized(id) && NumElements(u.shape()) > 0) {
        TG_RETURN_IF_ERROR(AddItem({u, {}, id, false}, id, Name(fusion_.decision[id])));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddStore(UOp store) {
    const UOp target = store.src(0), value = store.src(1);
    if (NumElements(target.shape()) == 0) return absl::OkStatus();
    if (fusion_.materialized(value.id())) {
      if (IsWholeOutput(store)) {
        aliases_.emplace(value.id(), target.id());
        return absl::OkStatus();
      }
      return AddItem({value, target, value.id(), true}, store.id(), "copies");
    }
    if (caution_ == Caution::kNone) {
      TG_RETURN_IF_ERROR(AddItem({value, target, 0, false}, store.id(), "stores"));
      if (!items_.back().kernel.reads_target_elsewhere) return absl::OkStatus();
      items_.pop_back();
    }
    // The value into a copy first: only the second kernel then waits for readers of the target.
    const MemoryId copy = store.id() | kCopyBit;
    TG_RETURN_IF_ERROR(AddItem({value, {}, copy, false}, copy, "stored: its target is still read"));
    return AddItem({value, target, copy, true}, store.id(), "copies");
  }

  // A stored value that is an output, whole, and nothing else needs no memory besides the output's.
  bool IsWholeOutput(UOp store) const {
    const UOp target = store.src(0), value = store.src(1);
    return target.is(Op::kParam) && uses_.at(target.id()) == 1 && !aliases_.contains(value.id()) &&
           std::ranges::equal(target.shape(), value.shape());
  }

  // The PARAM or AFTER that a STORE overwrites.
  uint32_t VersionUnder(UOp target) const {
    while (Is(target.op(), kMovement)) target = target.src(0);
    return target.id();
  }

  bool IsNode(MemoryId memory, Op op) const {
    return (memory & kCopyBit) == 0 && graph_.op(memory) == op;
  }

  // Items in dependency order, smallest index first; shorter than items_ if there is a cycle.
  std::vector<size_t> Order() const {
    absl::flat_hash_map<MemoryId, size_t> writer;
    absl::flat_hash_map<MemoryId, std::vector<size_t>> readers;
    for (size_t i = 0; i < items_.size(); ++i) {
      writer.emplace(items_[i].writes, i);
      for (MemoryId read : items_[i].kernel.reads) readers[read].push_back(i);
    }
    std::vector<std::vector<size_t>> after(items_.size());
    std::vector<int> waits(items_.size(), 0);
    const auto edge = [&](size_t from, size_t to) {
      if (from == to) return;
      after[from].push_back(to);
      ++waits[to];
    };
    const auto after_writer = [&](MemoryId memory, size_t to) {
      if (const auto it = writer.find(memory); it != writer.end()) edge(it->second, to);
    };
    const auto after_stores = [&](MemoryId version, size_t to) {
      if (!IsNode(version, Op::kAfter)) return;
      for (uint32_t store : graph_.src(version).subspan(1)) after_writer(store, to);
    };
    for (size_t i = 0; i < items_.size(); ++i) {
      for (MemoryId read : items_[i].kernel.reads) {
        after_stores(read, i);
        after_writer(read, i);
      }
      if (!IsNode(items_[i].writes, Op::kStore)) continue;
      const uint32_t version = VersionUnder(graph_.at(items_[i].writes).src(0));
      after_stores(version, i);
      for (size_t reader : readers[version]) edge(reader, i);
    }
    return Sort(after, std::move(waits));
  }

  static std::vector<size_t> Sort(const std::vector<std::vector<size_t>>& after,
                                  std::vector<int> waits) {
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i] == 0) ready.push(i);
    }
    std::vector<size_t> order;
    while (!ready.empty()) {
      const size_t i = ready.top();
      ready.pop();
      order.push_back(i);
      for (size_t j : after[i]) {
        if (--waits[j] == 0) ready.push(j);
      }
    }
    return order;
  }

  // The value that lies in `memory`.
  UOp ValueIn(MemoryId memory) const {
    const UOp u = graph_.at(memory & ~kCopyBit);
    return u.is(Op::kStore) ? u.src(1) : u;
  }

  BufferRef Buffer(MemoryId memory, Schedule* schedule) {
    if (const auto it = aliases_.find(memory); it != aliases_.end()) memory = it->second;
    if (IsNode(memory, Op::kParam)) {
      return {BufferRef::Kind::kSlot, static_cast<int32_t>(graph_.arg(memory)[0])};
    }
    const auto [it, added] = temporaries_.emplace(memory, temporaries_.size());
    if (added) {
      const UOp value = ValueIn(memory);
      schedule->temporaries.push_back({NumElements(value.shape()) * ByteSize(value.dtype()), 0});
    }
    return {BufferRef::Kind::kTemporary, static_cast<int32_t>(it->second)};
  }

  Schedule Emit(const std::vector<size_t>& order) {
    Schedule schedule;
    std::vector<Lifetime> lifetimes;
    for (size_t i : order) {
      Item& item = items_[i];
      const auto at = static_cast<int64_t>(schedule.kernels.size());
      ScheduledKernel kernel{std::move(item.kernel.graph), {}, std::move(item.reason)};
      for (MemoryId memory : item.kernel.arguments) {
        const BufferRef ref = Buffer(memory, &schedule);
        kernel.arguments.push_back(ref);
        if (ref.kind == BufferRef::Kind::kSlot) continue;
        if (static_cast<size_t>(ref.index) == lifetimes.size()) lifetimes.push_back({at, at});
        lifetimes[ref.index].last = at;
      }
      schedule.kernels.push_back(std::move(kernel));
    }
    schedule.arena_bytes = PlanMemory(lifetimes, schedule.temporaries);
    return schedule;
  }

  const Graph& graph_;
  const Caution caution_;
  Budget* budget_;
  FusionPlan fusion_;
  std::vector<Item> items_;
  absl::flat_hash_map<uint32_t, int> uses_;
  absl::flat_hash_map<MemoryId, uint32_t> aliases_;  // stored value -> output PARAM
  absl::flat_hash_set<uint32_t> snapshots_;          // PARAMs read from a copy
  absl::flat_hash_map<MemoryId, size_t> temporaries_;
};

// What the kernels below cannot say yet.
absl::Status CheckSupported(UOp sink) {
  constexpr Op kNotYet[] = {Op::kVar,    Op::kCat,      Op::kSin,       Op::kCDiv,   Op::kCMod,
                            Op::kPow,    Op::kThreefry, Op::kScatter,   Op::kTuple,  Op::kCopy,
                            Op::kMStack, Op::kMSelect,  Op::kAllReduce, Op::kUnshard};
  for (uint32_t id : PostOrder(sink)) {
    const UOp u = sink.graph()->at(id);
    const DType dtype = u.dtype();
    const bool wide = u.is(Op::kBitcast) && Info(dtype).bits != Info(u.src(0).dtype()).bits;
    if (std::ranges::find(kNotYet, u.op()) != std::end(kNotYet) || wide) {
      return absl::UnimplementedError(ToAbsl(StrCat("kernels for ", Name(u.op()))));
    }
    if (IsNarrowFloat(dtype) || IsStorage(dtype)) {
      return absl::UnimplementedError(ToAbsl(StrCat("kernels for ", Name(dtype))));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Schedule> ScheduleGraph(UOp sink, Budget* budget) {
  TG_RETURN_IF_ERROR(CheckSupported(sink));
  for (Caution caution : {Caution::kNone, Caution::kSplitStores, Caution::kSnapshotParams}) {
    TG_ASSIGN_OR_RETURN(std::optional<Schedule> schedule, Scheduler(sink, caution, budget).Run());
    if (schedule.has_value()) return *std::move(schedule);
  }
  return Internal("schedule: the kernels form a cycle");
}

}  // namespace telegrad
