// The graphs that a tenant has put, by content hash, bounded in number and serialized bytes; the
// least recently used goes first. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "engine/base/hash.h"
#include "engine/base/mutex.h"
#include "server/admin/metrics.h"
#include "server/tenant/imported_model.h"

namespace telegrad {

// How a run uses the buffer of a slot, derived from the graph alone, so that it is known even where
// the graph does not compile.
struct SlotEffect {
  bool written = false;
  bool replaced = false;  // every byte of the PARAM is written and none is read
  int64_t bytes = 0;      // of the PARAM
  int64_t device = -1;    // the number that the graph gives it; below 0: the slot is not used
};

std::vector<SlotEffect> SlotEffects(const FrozenGraph& graph);

struct StoredGraph {
  Digest hash;
  FrozenGraph graph;
  int64_t bytes = 0;
  std::vector<SlotEffect> slots;
  std::vector<int64_t> devices;  // the numbers that the graph names, ascending
  bool has_variables = false;    // whose values each run gives
};

std::shared_ptr<const StoredGraph> MakeStored(VerifiedGraph graph, int64_t bytes);

class GraphStore {
 public:
  // The accounts of the number of graphs and of their serialized bytes; nobody else takes from
  // them.
  GraphStore(std::shared_ptr<Account> count, std::shared_ptr<Account> bytes, Metrics* metrics)
      : count_account_(std::move(count)), bytes_account_(std::move(bytes)), metrics_(metrics) {}
  ~GraphStore();

  // Adds a graph or marks it used; the least recently used make room. RESOURCE_EXHAUSTED when it is
  // larger than all graphs may be together.
  absl::StatusOr<std::shared_ptr<const StoredGraph>> Put(VerifiedGraph graph, int64_t bytes);
  absl::StatusOr<std::shared_ptr<const StoredGraph>> Put(std::shared_ptr<const StoredGraph> graph);
  // Null if this tenant has not put it, or if it was evicted since.
  std::shared_ptr<const StoredGraph> Find(const Digest& hash);

 private:
  using List = std::list<std::shared_ptr<const StoredGraph>>;
  struct DigestHash {
    size_t operator()(const Digest& d) const;
  };
  absl::Status MakeRoom(int64_t bytes) TG_REQUIRES(mutex_);
  void Evict() TG_REQUIRES(mutex_);
  void DropOldest() TG_REQUIRES(mutex_);

  const std::shared_ptr<Account> count_account_, bytes_account_;
  Metrics* const metrics_;
  Mutex mutex_;
  List used_ TG_GUARDED_BY(mutex_);  // most recent first
  std::unordered_map<Digest, List::iterator, DigestHash> by_hash_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
