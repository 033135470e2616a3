#include "server/session/graph_store.h"

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
    if (graph.op(id) == Op::kParam) slots[id] = graph.arg(id)[0];
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
    const size_t i = static_cast<size_t>(param.arg(0));
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
      slot(u).device = u.arg(1);
    }
    for (int i = 0; i < u.num_src(); ++i) {
      if (!u.src(i).is(Op::kParam)) continue;
      SlotEffect& effect = slot(u.src(i));
      read.resize(slots.size());
      const bool whole = u.is(Op::kStore) && i == 0;
      if (whole) effect.replaced = true;
      if (!whole) read[static_cast<size_t>(u.src(i).arg(0))] = true;
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
  metrics_->Add(Metric::kGraphs, -static_cast<int64_t>(used_.size()));
  metrics_->Add(Metric::kGraphBytes, -bytes_);
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
  if (std::shared_ptr<const StoredGraph> known = Find(graph.hash)) return known;
  return Put(MakeStored(std::move(graph), bytes));
}

absl::StatusOr<std::shared_ptr<const StoredGraph>> GraphStore::Put(
    std::shared_ptr<const StoredGraph> graph) {
  const int64_t bytes = graph->bytes;
  if (bytes > limits_.graph_bytes) {
    return ResourceExhausted("a graph of ", bytes, " bytes exceeds graph_bytes, ",
                             limits_.graph_bytes, " for all graphs of a tenant");
  }
  std::lock_guard lock(mutex_);
  if (const auto it = by_hash_.find(graph->hash); it != by_hash_.end()) {
    used_.splice(used_.begin(), used_, it->second);
    return *it->second;
  }
  Evict(bytes);
  used_.push_front(graph);
  by_hash_[graph->hash] = used_.begin();
  bytes_ += bytes;
  metrics_->Add(Metric::kGraphs);
  metrics_->Add(Metric::kGraphBytes, bytes);
  return graph;
}

std::shared_ptr<const StoredGraph> GraphStore::Find(const Digest& hash) {
  std::lock_guard lock(mutex_);
  const auto it = by_hash_.find(hash);
  if (it == by_hash_.end()) return nullptr;
  used_.splice(used_.begin(), used_, it->second);
  return *it->second;
}

// Makes room for one more graph of that size. Runs that use an evicted graph keep their reference.
void GraphStore::Evict(int64_t bytes_needed) {
  while (!used_.empty() && (static_cast<int64_t>(used_.size()) >= limits_.graphs ||
                            bytes_ > limits_.graph_bytes - bytes_needed)) {
    const auto& oldest = used_.back();
    bytes_ -= oldest->bytes;
    metrics_->Add(Metric::kGraphs, -1);
    metrics_->Add(Metric::kGraphBytes, -oldest->bytes);
    metrics_->Add(Metric::kGraphEvictions);
    by_hash_.erase(oldest->hash);
    used_.pop_back();
  }
}

}  // namespace telegrad
