// Executables of graphs that name several devices, by content and by what the device numbers mean;
// bounded, evicted least recently used. A graph whose numbers are all one device is an executable
// of that device, see ExecutableCache, or, where the device takes graphs, goes there as it is;
// parts of others are too, shared by all graphs that have the same part there.
//
// A graph with variables is partitioned once, for all of their values: its parts are graphs with
// variables, each with the forms that ExecutableCache makes of it, and a run puts the values in.
// Only what has no such partition, see PartitionForAll, is partitioned for each set of values, and
// what finds no memory for the bounds of its sizes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/base/once_cache.h"
#include "engine/execution/executable_cache.h"
#include "engine/execution/graph_executable.h"
#include "engine/execution/partitioned_executable.h"
#include "engine/ir/graph.h"
#include "engine/rewrite/generalize.h"
#include "engine/types/var_value.h"

namespace telegrad {

// The device numbers that a graph names, ascending.
std::vector<int64_t> DeviceNumbers(UOp sink);

// Thread-safe.
class PartitionedCache {
 public:
  struct Limits {
    int64_t executables = 1024;
    AllReduceAlgorithm all_reduce = AllReduceAlgorithm::kBySize;
    // What the server lets a run have at a time, as RunCost::peak_bytes; 0: no limit.
    int64_t run_bytes = 0;
  };

  // `parts` outlives it; what it keeps is charged to the same accounts.
  PartitionedCache(ExecutableCache* parts, const Limits& limits);

  // devices[n] is the device that number n of the graph means; null, or no entry: none does. Other
  // than that as ExecutableCache::Get. INVALID_ARGUMENT names a number that is bound to none.
  absl::StatusOr<ExecutableCache::Result> Get(const Digest& hash, const FrozenGraph& graph,
                                              std::span<Device* const> devices, Budget* budget,
                                              std::span<const VarValue> variables = {});
  // The executable if it is there, without ever waiting or compiling; else null.
  std::shared_ptr<const Executable> Find(const Digest& hash, std::span<Device* const> devices,
                                         std::span<const VarValue> variables = {});

  // Releases the memory for values passed between parts that no run in flight uses.
  void ReleaseMemory();

  // As those of ExecutableCache. A part that is kept there, too, is charged twice.
  std::optional<uint64_t> OldestUse() const { return cache_.OldestUse(); }
  void DropOldest() { cache_.DropOldest(); }

  // Bytes that runs were told to send between devices, of all caches that share the kernels.
  int64_t bytes_sent() const { return parts_.stats().bytes_sent; }

 private:
  // A part of a plan for all values.
  struct Part {
    Device* device = nullptr;  // null: a transfer
    Digest hash;
    std::vector<int64_t> variables;              // ids
    std::shared_ptr<const GraphOnDevice> graph;  // of a device that takes graphs
    std::shared_ptr<const Executable> copies;    // of one that only copies
  };
  struct ForAll {
    std::vector<VarRange> variables;
    std::shared_ptr<const PartitionedPlan> plan;  // null: there is none
    std::string none;                             // why
    std::vector<Part> parts;                      // by step
  };
  // What an entry holds: an executable, one over several devices, a graph that a device has loaded,
  // or a plan; of these two, runs with other values of the variables make further executables.
  struct Made {
    std::shared_ptr<const Executable> executable = nullptr;
    std::shared_ptr<const PartitionedPlan> plan = nullptr;  // of that one, if it is over several
    std::shared_ptr<const GraphOnDevice> graph = nullptr;
    std::shared_ptr<const ForAll> all = nullptr;
  };
  // The executable of a part that is one of the device, for these values; null: it is not there.
  using PartFor = absl::FunctionRef<absl::StatusOr<std::shared_ptr<const Executable>>(
      const Part& part, const FrozenGraph& graph, std::span<const VarValue> values)>;
  struct Lowered {
    bool cached = true;
    LoweringTime time;
  };

  static int64_t BytesOf(const Made& made);

  absl::StatusOr<std::shared_ptr<const GraphOnDevice>> Load(const Digest& hash,
                                                            const FrozenGraph& graph,
                                                            Device& device, Budget* budget);
  absl::StatusOr<Made> MakeFor(const FrozenGraph& graph, std::span<Device* const> devices,
                               std::string reason, std::span<const VarValue> values, Budget* budget,
                               Lowered* lowered);
  absl::StatusOr<Made> MakeForAll(const FrozenGraph& graph, std::span<Device* const> devices,
                                  Budget* budget);
  absl::StatusOr<std::shared_ptr<const PartitionedPlan>> Plan(Partition partition,
                                                              const FrozenGraph& graph,
                                                              std::vector<Device*> devices,
                                                              std::string reason) const;
  // For values that are sorted and of the ranges; null where PartFor says so, or a device would
  // have to be asked and it may not wait.
  static absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> Bind(
      const ForAll& all, std::span<const VarValue> values, bool may_wait, PartFor part_for);
  // Whether a run has what it needs for the bounds: that is within its limit, and the plan's memory
  // is there, or is allocated now. `release`: for it, what is kept for other runs is released if
  // need be.
  absl::Status Fit(const PartitionedExecutable& bound, bool release);
  absl::StatusOr<std::shared_ptr<const Executable>> GetPart(const Digest& hash,
                                                            const FrozenGraph& graph,
                                                            Device& device, Budget* budget,
                                                            std::span<const VarValue> values,
                                                            Lowered* lowered);

  ExecutableCache& parts_;
  const Limits limits_;
  OnceCache<Made> cache_;
};

}  // namespace telegrad
