// Executables by content, bounded, evicted least recently used. Each tenant has a cache of its own,
// so that it does not learn what others have compiled; the compiled kernels below are shared by
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/execution/cache_accounts.h"
#include "engine/execution/executable.h"
#include "engine/execution/kernel_services.h"
#include "engine/execution/lowering_time.h"
#include "engine/ir/graph.h"
#include "engine/lowering/bounds_proof.h"
#include "engine/types/var_value.h"

namespace telegrad {

struct RunCounters;
struct SharedCaches;

// Thread-safe; a graph that several ask for at once is compiled once. A graph with variables has
// several forms, see forms.h.
class ExecutableCache {
 public:
  struct Limits {
    int64_t executables = 1024;
    int64_t specializations = 4;  // of a graph, to values of its variables
    // Members that may be shared with other caches:
    int64_t kernels = 8192;                      // compiled programs
    int64_t schedule_bytes = int64_t{64} << 20;  // of schedules kept
  };
  struct Stats {  // totals of all caches that share the kernels
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t general_forms = 0;  // made, for ranges of variables
    uint64_t kernels_compiled = 0;
    uint64_t kernel_cache_hits = 0;
    uint64_t schedule_hits = 0;  // graphs scheduled before, for another device or an evicted form
    uint64_t schedule_ns = 0;
    uint64_t lower_ns = 0;
    uint64_t compile_ns = 0;
    uint64_t submissions = 0;
    uint64_t launches = 0;               // of kernels, submitted
    uint64_t segments = 0;               // that they were cut into
    int64_t bytes_sent = 0;              // from one device to another
    uint64_t partitions = 0;             // of graphs for several devices
    uint64_t partitions_for_values = 0;  // those for one set of values of variables
    BoundsStats bounds;                  // of the kernels compiled
    uint64_t kernels_lowered_again = 0;  // see KernelStats
    uint64_t kernels_left_to_driver = 0;
  };
  struct Result {
    std::shared_ptr<const Executable> executable;
    bool cached = false;        // nothing was scheduled or compiled for this call
    uint64_t compile_ns = 0;    // schedule, lower and compile; 0 when cached
    LoweringTime lowered = {};  // of the kernels that were lowered for this call
  };

  // A cache that shares nothing and charges no account.
  explicit ExecutableCache(const Limits& limits, KernelServices services = {});
  ExecutableCache(const Limits& limits, std::shared_ptr<SharedCaches> shared,
                  CacheAccounts accounts);
  ~ExecutableCache();

  // `hash` is the content hash of `graph`, a verified tensor graph (its SINK is the root).
  // INVALID_ARGUMENT: a variable has no value, or one that it does not allow.
  absl::StatusOr<Result> Get(const Digest& hash, const FrozenGraph& graph, Device& device,
                             Budget* budget, std::span<const VarValue> variables = {});
  // The executable if it is there, without ever waiting or compiling; else null.
  std::shared_ptr<const Executable> Find(const Digest& hash, const Device& device,
                                         std::span<const VarValue> variables = {});
  // Gives back the memory for temporaries that no run in flight uses.
  void ReleaseTemporaries();

  // The time at which the least recently used entry was used, by the accounts' clock; nullopt if no
  // entry can be dropped.
  std::optional<uint64_t> OldestUse() const;
  // Drops that one. A run in flight keeps it.
  void DropOldest();

  const CacheAccounts& accounts() const;
  const std::shared_ptr<RunCounters>& run_counters() const;
  Stats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace telegrad
