// A kernel computes materialized values into memory, performs STOREs, or both. The STOREs to a
// slot are in a total order, so a slot has numbered versions: PARAM is version 0, AFTER(PARAM,
// stores) the one that the last of its stores made. Order follows from three kinds of edges: a
// reader of a stored value runs after its writer; STOREs to a slot run in their order; and a reader
// of a version runs after the STORE that made it and before the next one. A kernel may overwrite
// what it reads itself only at the very element it has read. Where that does not hold, or where the
// edges form a cycle (two buffers swapped), the STORE computes into a temporary first; where a
// kernel needs several versions of a slot, or an old one late, it reads copies of them.
#include "engine/schedule/order_kernels.h"

#include <algorithm>
#include <queue>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "engine/schedule/argument_views.h"
#include "engine/schedule/dot_product.h"
#include "engine/schedule/in_place.h"
#include "engine/schedule/kernel_builder.h"
#include "engine/schedule/memory_plan.h"
#include "engine/schedule/results.h"
#include "engine/schedule/split_product.h"
#include "engine/schedule/split_rows.h"
#include "engine/schedule/winograd.h"

namespace telegrad {
namespace {

struct Item {
  std::vector<MemoryId> writes;  // the memory that it fills, and the STOREs that it performs
  std::vector<std::string> reasons;
  KernelGraph kernel;
};

class KernelOrder {
 public:
  KernelOrder(UOp sink, FusionPlan fusion, Caution caution, const ScheduleOptions& target,
              Budget* budget)
      : graph_(*sink.graph()),
        caution_(caution),
        target_(target),
        budget_(budget),
        held_(budget),
        slot_(graph_, -1),
        fusion_(std::move(fusion)) {}

  absl::StatusOr<Attempt> Run() {
    NumberStores();
    if (caution_ == Caution::kSnapshotVersions) TG_RETURN_IF_ERROR(TakeSnapshots());
    TG_RETURN_IF_ERROR(CollectItems());
    for (const Item& item : items_) {
      if (item.kernel.reads_several_versions) Separate(item);
    }
    for (const Item& item : items_) {
      if (item.kernel.reads_several_versions) return Attempt{std::nullopt, std::move(alone_)};
    }
    if (!alone_.empty()) return Attempt{std::nullopt, std::move(alone_)};
    const std::vector<size_t> order = Order();
    if (order.size() < items_.size()) {
      std::vector<bool> ordered(items_.size(), false);
      for (size_t i : order) ordered[i] = true;
      for (size_t i = 0; i < items_.size(); ++i) {
        if (!ordered[i]) Separate(items_[i]);
      }
      return Attempt{std::nullopt, std::move(alone_)};
    }
    TG_ASSIGN_OR_RETURN(Schedule schedule, Emit(order));
    return Attempt{std::move(schedule), {}};
  }

 private:
  // What the item writes is to be written by kernels of its own, where it is several things.
  void Separate(const Item& item) {
    if (item.writes.size() < 2) return;
    alone_.insert(alone_.end(), item.writes.begin(), item.writes.end());
  }

  void NumberStores() {
    for (uint32_t id : fusion_.order) {
      const Op op = graph_.op(id);
      if (op == Op::kParam) slot_[id] = graph_.at(id).slot();
      if (op == Op::kAfter || Is(op, kMovement)) slot_[id] = slot_[graph_.src(id)[0]];
      if (graph_.op(id) != Op::kStore) continue;
      std::vector<uint32_t>& stores = stores_[SlotOf(graph_.src(id)[0])];
      stores.push_back(id);
      number_[id] = stores.size();
    }
  }

  // Of a PARAM or AFTER, or a view of one.
  int64_t SlotOf(uint32_t id) const { return slot_.at(id); }

  // How many of the slot's STOREs a PARAM or AFTER has seen.
  size_t Version(uint32_t id) const {
    size_t version = 0;
    if (graph_.op(id) == Op::kParam) return version;
    for (uint32_t store : graph_.src(id).subspan(1)) version = std::max(version, number_.at(store));
    return version;
  }

  bool IsOverwritten(uint32_t id) const {
    const auto it = stores_.find(SlotOf(id));
    return it != stores_.end() && it->second.size() > Version(id);
  }

  bool IsVersion(MemoryId memory) const {
    return IsNode(memory, Op::kParam) || IsNode(memory, Op::kAfter);
  }

  std::optional<MemoryId> ReadFromMemory(uint32_t node) const {
    if (IsVersion(node)) return snapshots_.contains(node) ? node | kCopyBit : node;
    if (fusion_.materialized(node)) return node;
    return std::nullopt;
  }

  absl::Status AddItem(KernelOutput output, MemoryId writes, std::vector<std::string> reasons) {
    return AddItem({.nests = {{{output}}}}, {writes}, std::move(reasons));
  }

  absl::Status AddItem(KernelRequest request, std::vector<MemoryId> writes,
                       std::vector<std::string> reasons) {
    TG_RETURN_IF_ERROR(budget_->SpendKernels());
    const ReadFrom read_from = [this](uint32_t node) { return ReadFromMemory(node); };
    request.level = fusion_.level;
    TG_ASSIGN_OR_RETURN(KernelGraph kernel, BuildKernel(request, read_from, budget_));
    TG_RETURN_IF_ERROR(held_.Grow(kernel.graph.graph->bytes()));
    items_.push_back({std::move(writes), std::move(reasons), std::move(kernel)});
    return absl::OkStatus();
  }

  // Copies every version that is read and then overwritten.
  absl::Status TakeSnapshots() {
    std::vector<bool> read(graph_.size(), false);  // not only a STORE's target
    for (auto it = fusion_.order.rbegin(); it != fusion_.order.rend(); ++it) {
      const uint32_t id = *it;
      const Op op = graph_.op(id);
      const std::span<const uint32_t> src = graph_.src(id);
      if (op == Op::kSink || op == Op::kAfter) continue;
      for (size_t i = op == Op::kStore ? 1 : 0; i < src.size(); ++i) {
        if (!Is(op, kMovement) || read[id]) read[src[i]] = true;
      }
    }
    for (uint32_t id : fusion_.order) {
      if (!read[id] || !IsVersion(id) || !IsOverwritten(id)) continue;
      if (NumElements(graph_.shape(id)) == 0) continue;
      const MemoryId copy = id | kCopyBit;
      TG_RETURN_IF_ERROR(
          AddItem({graph_.at(id), {}, copy}, copy, {"copies a param before its store"}));
      snapshots_.insert(id);
    }
    return absl::OkStatus();
  }

  absl::Status CollectItems() {
    for (PlannedKernel& kernel : fusion_.kernels) {
      const UOp first = graph_.at(kernel.nests.front().roots.front());
      const bool single = kernel.nests.size() == 1 && kernel.nests.front().roots.size() == 1;
      if (first.is(Op::kScatter)) {
        TG_RETURN_IF_ERROR(AddScatter(first));
      } else if (single && first.is(Op::kStore)) {
        TG_RETURN_IF_ERROR(AddStore(first, std::move(kernel.reasons)));
      } else {
        TG_RETURN_IF_ERROR(AddKernel(kernel));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddKernel(PlannedKernel& kernel) {
    KernelRequest request;
    request.shared_loops = kernel.shared_loops;
    request.shared_tile = kernel.shared_tile;
    for (uint32_t id : kernel.kept) {
      if (!fusion_.aliases.contains(id)) request.kept.push_back(id);
    }
    std::vector<MemoryId> writes;
    for (const PlannedNest& nest : kernel.nests) {
      request.nests.emplace_back();
      for (uint32_t root : nest.roots) AddOutput(root, &request.nests.back().outputs, &writes);
    }
    TG_RETURN_IF_ERROR(AddItem(std::move(request), std::move(writes), std::move(kernel.reasons)));
    // A STORE that needs its value in a copy first is written alone.
    if (items_.back().kernel.reads_target_elsewhere) Separate(items_.back());
    return absl::OkStatus();
  }

  // A STORE, and the value that it leaves in the PARAM for others; or a value.
  void AddOutput(uint32_t root, std::vector<KernelOutput>* outputs,
                 std::vector<MemoryId>* writes) const {
    const UOp u = graph_.at(root);
    writes->push_back(root);
    if (!u.is(Op::kStore)) {
      outputs->push_back({u, {}, root, false});
      return;
    }
    outputs->push_back({u.src(1), u.src(0), 0, false});
    if (IsAlias(u)) {
      outputs->back().computes = true;
      writes->push_back(u.src(1).id());
    }
  }

  // Whether the stored value is read from what the STORE has written.
  bool IsAlias(UOp store) const {
    const auto it = fusion_.aliases.find(store.src(1).id());
    return it != fusion_.aliases.end() && it->second == store.id();
  }

  // First the base into the SCATTER's memory, then its rows, if there are any, in place.
  absl::Status AddScatter(UOp scatter) {
    const bool rows = NumElements(scatter.src(2).shape()) > 0;
    const MemoryId base = rows ? scatter.id() | kCopyBit : scatter.id();
    TG_RETURN_IF_ERROR(AddItem({scatter.src(0), {}, base}, base, {"the base of a scatter"}));
    if (!rows) return absl::OkStatus();
    return AddItem({scatter, {}, scatter.id()}, scatter.id(),
                   {std::string(Name(Materialize::kScatter))});
  }

  absl::Status AddStore(UOp store, std::vector<std::string> reasons) {
    const UOp target = store.src(0), value = store.src(1);
    const bool computes = !fusion_.materialized(value.id()) || IsAlias(store);
    if (caution_ == Caution::kNone || IsAlias(store) || !computes) {
      std::vector<KernelOutput> outputs;
      std::vector<MemoryId> writes;
      AddOutput(store.id(), &outputs, &writes);
      TG_RETURN_IF_ERROR(AddItem({.nests = {{std::move(outputs)}}}, std::move(writes), reasons));
      if (!items_.back().kernel.reads_target_elsewhere) return absl::OkStatus();
      items_.pop_back();
    }
    // The value into a copy first: only the second kernel then waits for readers of the target.
    const MemoryId copy = store.id() | kCopyBit;
    reasons.emplace_back("stored: its target is still read");
    TG_RETURN_IF_ERROR(AddItem({value, {}, copy}, copy, std::move(reasons)));
    return AddItem({value, target, copy, true}, store.id(), {"copies"});
  }

  bool IsNode(MemoryId memory, Op op) const {
    return (memory & kCopyBit) == 0 && graph_.op(memory) == op;
  }

  // Items in dependency order, smallest index first; shorter than items_ if there is a cycle.
  std::vector<size_t> Order() const {
    absl::flat_hash_map<MemoryId, size_t> writer;
    for (size_t i = 0; i < items_.size(); ++i) {
      for (MemoryId memory : items_[i].writes) writer.emplace(memory, i);
    }
    std::vector<std::vector<size_t>> after(items_.size());
    std::vector<int> waits(items_.size(), 0);
    const auto edge = [&](size_t from, size_t to) {
      if (from == to) return;
      after[from].push_back(to);
      ++waits[to];
    };
    // Each slot's STOREs that are items (those of no elements are none): number and item.
    absl::flat_hash_map<int64_t, std::vector<std::pair<size_t, size_t>>> chains;
    for (const auto& [slot, stores] : stores_) {
      std::vector<std::pair<size_t, size_t>>& chain = chains[slot];
      for (uint32_t store : stores) {
        const auto it = writer.find(store);
        if (it == writer.end()) continue;
        if (!chain.empty()) edge(chain.back().second, it->second);
        chain.emplace_back(number_.at(store), it->second);
      }
    }
    for (size_t i = 0; i < items_.size(); ++i) {
      for (MemoryId read : items_[i].kernel.reads) {
        if (const auto it = writer.find(read); it != writer.end()) edge(it->second, i);
        if (!IsVersion(read)) continue;
        const auto chain = chains.find(SlotOf(read));
        if (chain == chains.end()) continue;
        const auto next = std::ranges::upper_bound(chain->second, Version(read), {},
                                                   &std::pair<size_t, size_t>::first);
        if (next != chain->second.begin()) edge(std::prev(next)->second, i);
        if (next != chain->second.end()) edge(i, next->second);
      }
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
    if (const auto it = fusion_.aliases.find(memory); it != fusion_.aliases.end()) {
      memory = graph_.src(it->second)[0];
      while (graph_.op(memory) == Op::kReshape) memory = graph_.src(memory)[0];
    }
    if (IsNode(memory, Op::kParam)) {
      return {BufferRef::Kind::kSlot, static_cast<int32_t>(graph_.at(memory).slot())};
    }
    const auto [it, added] = temporaries_.emplace(memory, schedule->temporaries.size());
    if (added) {
      const UOp value = ValueIn(memory);
      schedule->temporaries.push_back({BytesOf(value.dtype(), NumElements(value.shape())), 0});
    }
    return {BufferRef::Kind::kTemporary, static_cast<int32_t>(it->second)};
  }

  void EmitKernel(ScheduledKernel kernel, Schedule* schedule, std::vector<Lifetime>* lifetimes) {
    const auto at = static_cast<int64_t>(schedule->kernels.size());
    for (const BufferRef ref : kernel.arguments) {
      if (ref.kind == BufferRef::Kind::kSlot) continue;
      if (static_cast<size_t>(ref.index) == lifetimes->size()) lifetimes->push_back({at, at});
      (*lifetimes)[static_cast<size_t>(ref.index)].last = at;
    }
    schedule->kernels.push_back(std::move(kernel));
  }

  bool IsWeight(MemoryId memory) const {
    return IsNode(memory, Op::kParam) && !stores_.contains(graph_.at(memory).slot());
  }

  void EmitParts(const Item& item, KernelParts parts, Schedule* schedule,
                 std::vector<Lifetime>* lifetimes) {
    std::vector<std::optional<BufferRef>> temporaries(parts.temporaries.size());
    // Memory that only these kernels share.
    const auto temporary = [&](size_t i) {
      if (!temporaries[i]) {
        temporaries[i] = {BufferRef::Kind::kTemporary,
                          static_cast<int32_t>(schedule->temporaries.size())};
        schedule->temporaries.push_back({BytesOf(DType::kFloat32, parts.temporaries[i]), 0});
      }
      return *temporaries[i];
    };
    for (KernelPart& part : parts.kernels) {
      ScheduledKernel kernel{std::move(part.graph), {}, item.reasons};
      kernel.reasons.push_back(std::move(part.reason));
      for (const int argument : part.arguments) {
        kernel.arguments.push_back(
            argument < 0 ? temporary(static_cast<size_t>(~argument))
                         : Buffer(item.kernel.arguments[static_cast<size_t>(argument)], schedule));
      }
      EmitKernel(std::move(kernel), schedule, lifetimes);
    }
  }

  absl::StatusOr<Schedule> Emit(const std::vector<size_t>& order) {
    Schedule schedule;
    std::vector<Lifetime> lifetimes;
    for (size_t i : order) {
      Item& item = items_[i];
      const auto is_weight = [&](int argument) {
        return IsWeight(item.kernel.arguments[static_cast<size_t>(argument)]);
      };
      TG_ASSIGN_OR_RETURN(std::optional<KernelParts> parts,
                          UseWinograd(item.kernel.graph, is_weight, target_, budget_));
      if (!parts) {
        TG_ASSIGN_OR_RETURN(parts, UseDots(item.kernel.graph, is_weight, target_, budget_));
      }
      if (!parts) {
        TG_ASSIGN_OR_RETURN(parts, SplitProduct(item.kernel.graph, target_, budget_));
      }
      if (!parts) {
        TG_ASSIGN_OR_RETURN(parts, SplitRows(item.kernel.graph, target_, budget_));
      }
      if (parts) {
        EmitParts(item, *std::move(parts), &schedule, &lifetimes);
        continue;
      }
      ScheduledKernel kernel{std::move(item.kernel.graph), {}, std::move(item.reasons)};
      for (MemoryId memory : item.kernel.arguments) {
        kernel.arguments.push_back(Buffer(memory, &schedule));
      }
      EmitKernel(std::move(kernel), &schedule, &lifetimes);
    }
    WriteInPlace(&schedule, &lifetimes, target_.machine->schedule.tile);
    for (ScheduledKernel& kernel : schedule.kernels) {
      for (size_t a = 0; a < kernel.arguments.size(); ++a) {
        const BufferRef ref = kernel.arguments[a];
        if (ref.kind == BufferRef::Kind::kTemporary || stores_.contains(ref.index)) continue;
        kernel.weights.push_back(static_cast<int32_t>(a));
      }
    }
    FindResults(&schedule);
    TG_RETURN_IF_ERROR(ViewArguments(&schedule, budget_));
    schedule.arena_bytes = PlanMemory(lifetimes, schedule.temporaries);
    for (size_t i = 0; i < lifetimes.size(); ++i) {
      schedule.temporaries[i].first = lifetimes[i].first;
      schedule.temporaries[i].last = lifetimes[i].last;
    }
    return schedule;
  }

  const Graph& graph_;
  const Caution caution_;
  const ScheduleOptions& target_;
  Budget* budget_;
  Budget::Held held_;      // the kernels
  NodeMap<int64_t> slot_;  // of a PARAM or AFTER and their views
  FusionPlan fusion_;
  std::vector<Item> items_;
  std::vector<uint32_t> alone_;                                 // see Attempt
  absl::flat_hash_set<uint32_t> snapshots_;                     // versions read from a copy
  absl::flat_hash_map<int64_t, std::vector<uint32_t>> stores_;  // by slot, in order
  absl::flat_hash_map<uint32_t, size_t> number_;  // of each STORE among its slot's, from 1
  absl::flat_hash_map<MemoryId, size_t> temporaries_;
};

}  // namespace

absl::StatusOr<Attempt> OrderKernels(UOp sink, FusionPlan fusion, Caution caution,
                                     const ScheduleOptions& target, Budget* budget) {
  return KernelOrder(sink, std::move(fusion), caution, target, budget).Run();
}

}  // namespace telegrad
