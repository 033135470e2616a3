// Graphs in the order of their last use. What a run needs to know of its slots is derived once,
// when a graph is put.
#include "server/tenant/graph_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "engine/execution/partitioned_cache.h"

namespace telegrad {
namespace {

// By node: the slot of the PARAM that it is by way of first sources, -1 for none.
NodeMap<int64_t> SlotsUnder(const Graph& graph, std::span<const uint32_t> order) {
  NodeMap<int64_t> slots(graph, -1);
  for (const uint32_t id : order) {
    const std::span<const uint32_t> src = graph.src(id);
    if (!src.empty()) slots[id] = slots[src[0]];
    if (graph.op(id) == Op::kParam) slots[id] = graph.at(id).slot();
  }
  return slots;
}

bool HasVariables(const FrozenGraph& graph) {
  if (!graph.graph) return false;
  const std::vector<uint32_t> order = PostOrder(graph.root());
  return std::ranges::any_of(order, [&](uint32_t id) {
    return graph.graph->op(id) == Op::kVar && graph.graph->src(id).empty();
  });
}

}  // namespace

std::vector<SlotEffect> SlotEffects(const FrozenGraph& graph) {
  std::vector<SlotEffect> slots;
  if (!graph.graph) return slots;
  const auto slot = [&](UOp param) -> SlotEffect& {
    const size_t i = static_cast<size_t>(param.slot());
    if (i >= slots.size()) slots.resize(i + 1);
    return slots[i];
  };
  const std::vector<uint32_t> order = PostOrder(graph.root());
  NodeMap<int64_t> under = SlotsUnder(*graph.graph, order);
  std::vector<bool> read;
  for (const uint32_t id : order) {
    const UOp u = graph.graph->at(id);
    if (u.is(Op::kParam)) {
      slot(u).bytes = BytesOf(u.dtype(), NumElements(u.shape()));
      slot(u).device = u.device();
    }
    for (int i = 0; i < u.num_src(); ++i) {
      if (!u.src(i).is(Op::kParam)) continue;
      SlotEffect& effect = slot(u.src(i));
      read.resize(slots.size());
      const bool whole = u.is(Op::kStore) && i == 0;
      if (whole) effect.replaced = true;
      if (!whole) read[static_cast<size_t>(u.src(i).slot())] = true;
    }
    if (u.is(Op::kStore)) {
      const int64_t written = under[u.src(0)];
      if (written >= 0) slots[static_cast<size_t>(written)].written = true;
    }
  }
  read.resize(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) slots[i].replaced = slots[i].replaced && !read[i];
  return slots;
}

size_t GraphStore::DigestHash::operator()(const Digest& d) const {
  size_t h;  // any part of a cryptographic hash is a hash
  std::memcpy(&h, d.bytes.data(), sizeof(h));
  return h;
}

GraphStore::~GraphStore() {
  while (!used_.empty()) DropOldest();
}

std::shared_ptr<const StoredGraph> MakeStored(VerifiedGraph graph, int64_t bytes) {
  auto stored = std::make_shared<StoredGraph>();
  stored->hash = graph.hash;
  stored->slots = SlotEffects(graph.graph);
  stored->has_variables = HasVariables(graph.graph);
  if (graph.graph.graph) stored->devices = DeviceNumbers(graph.graph.root());
  stored->graph = std::move(graph.graph);
  stored->bytes = bytes;
  return stored;
}

absl::StatusOr<std::shared_ptr<const StoredGraph>> GraphStore::Put(VerifiedGraph graph,
                                                                   int64_t bytes) {
  return Put(MakeStored(std::move(graph), bytes));
}

absl::StatusOr<std::shared_ptr<const StoredGraph>> GraphStore::Put(
    std::shared_ptr<const StoredGraph> graph) {
  const int64_t bytes = graph->bytes;
  if (bytes > bytes_account_->limit()) return bytes_account_->Refuse(bytes);
  const MutexLock lock(mutex_);
  if (const auto it = by_hash_.find(graph->hash); it != by_hash_.end()) {
    used_.splice(used_.begin(), used_, it->second);
    return *it->second;
  }
  TG_RETURN_IF_ERROR(MakeRoom(bytes));
  used_.push_front(graph);
  by_hash_[graph->hash] = used_.begin();
  metrics_->Add(Metric::kGraphs);
  metrics_->Add(Metric::kGraphBytes, bytes);
  return graph;
}

std::shared_ptr<const StoredGraph> GraphStore::Find(const Digest& hash) {
  const MutexLock lock(mutex_);
  const auto it = by_hash_.find(hash);
  if (it == by_hash_.end()) return nullptr;
  used_.splice(used_.begin(), used_, it->second);
  return *it->second;
}

// Reserves what one more graph of that size takes, which is no more than all may. Runs that use an
// evicted graph keep their reference.
absl::Status GraphStore::MakeRoom(int64_t bytes) {
  while (!count_account_->TryReserve(1)) {
    if (used_.empty()) return count_account_->Refuse(1);
    Evict();
  }
  while (!bytes_account_->TryReserve(bytes)) Evict();
  return absl::OkStatus();
}

void GraphStore::Evict() {
  DropOldest();
  metrics_->Add(Metric::kGraphEvictions);
}

void GraphStore::DropOldest() {
  const std::shared_ptr<const StoredGraph> oldest = std::move(used_.back());
  used_.pop_back();
  by_hash_.erase(oldest->hash);
  count_account_->Release(1);
  bytes_account_->Release(oldest->bytes);
  metrics_->Add(Metric::kGraphs, -1);
  metrics_->Add(Metric::kGraphBytes, -oldest->bytes);
}

}  // namespace telegrad
