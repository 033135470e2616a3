// Executables of graphs that name several devices, by content and by what the device numbers mean;
// bounded, evicted least recently used. A graph whose numbers are all one device is an executable
// of that device, see ExecutableCache; parts of others are too, shared by all graphs that have the
// same part there.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/budget.h"
#include "engine/base/hash.h"
#include "engine/execution/executable_cache.h"
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

  // `parts` outlives it.
  PartitionedCache(ExecutableCache* parts, const Limits& limits)
      : parts_(*parts), limits_(limits) {}

  // devices[n] is the device that number n of the graph means; null, or no entry: none does. Other
  // than that as ExecutableCache::Get. INVALID_ARGUMENT names a number that is bound to none.
  absl::StatusOr<ExecutableCache::Result> Get(const Digest& hash, const FrozenGraph& graph,
                                              std::span<Device* const> devices, Budget* budget,
                                              std::span<const VarValue> variables = {});
  // The executable if it is there, without ever waiting or compiling; else null.
  std::shared_ptr<const Executable> Find(const Digest& hash, std::span<Device* const> devices,
                                         std::span<const VarValue> variables = {});

  // That runs were told to send between devices.
  int64_t bytes_sent() const { return sent_->load(); }

 private:
  using Made = std::shared_ptr<const PartitionedExecutable>;
  struct Entry {
    Made executable;
    std::list<std::string>::iterator age;
  };

  Made FindLocked(const std::string& key);
  absl::StatusOr<Made> Make(const FrozenGraph& graph, std::span<Device* const> devices,
                            Budget* budget, std::span<const VarValue> variables);

  ExecutableCache& parts_;
  const Limits limits_;
  const std::shared_ptr<std::atomic<int64_t>> sent_ = std::make_shared<std::atomic<int64_t>>(0);
  mutable std::mutex mutex_;
  absl::flat_hash_map<std::string, Entry> entries_;
  std::list<std::string> by_age_;  // least recently used first
};

}  // namespace telegrad
