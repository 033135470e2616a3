// Executables of graphs that name several devices, by content and by what the device numbers mean;
// bounded, evicted least recently used. A graph whose numbers are all one device is an executable
// of that device, see ExecutableCache, or, where the device takes graphs, goes there as it is;
// parts of others are too, shared by all graphs that have the same part there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/base/once_cache.h"
#include "engine/execution/executable_cache.h"
#include "engine/execution/graph_executable.h"
#include "engine/execution/partitioned_executable.h"
#include "engine/ir/graph.h"
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
  // What an entry holds: an executable, one over several devices, or a graph that a device has
  // loaded, of which runs with other values of its variables make further executables.
  struct Made {
    std::shared_ptr<const Executable> executable = nullptr;
    std::shared_ptr<const PartitionedExecutable> several = nullptr;
    std::shared_ptr<const GraphOnDevice> graph = nullptr;
  };
  static int64_t BytesOf(const Made& made);

  absl::StatusOr<std::shared_ptr<const Executable>> MakeOnDevice(
      const Digest& hash, const FrozenGraph& graph, Device& device, Budget* budget,
      std::span<const VarValue> variables);
  absl::StatusOr<std::shared_ptr<const PartitionedExecutable>> Make(
      const FrozenGraph& graph, std::span<Device* const> devices, Budget* budget,
      std::span<const VarValue> variables, LoweringTime* lowered);

  ExecutableCache& parts_;
  const Limits limits_;
  OnceCache<Made> cache_;
};

}  // namespace telegrad
