// The interface between sessions and the engine: looks up or compiles the executable of a graph.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/execution/executable_cache.h"
#include "engine/types/var_value.h"

namespace telegrad {

// Thread-safe. devices[n] is the device that number n of a graph means; null where it names none
// such.
class Engine {
 public:
  virtual ~Engine() = default;
  // The executable if it exists; never compiles.
  virtual std::shared_ptr<const Executable> Find(const Digest& hash,
                                                 std::span<Device* const> devices,
                                                 std::span<const VarValue> variables) = 0;
  // Schedules and compiles where needed; may take long.
  virtual absl::StatusOr<ExecutableCache::Result> Get(const Digest& hash, const FrozenGraph& graph,
                                                      std::span<Device* const> devices,
                                                      Budget* budget,
                                                      std::span<const VarValue> variables) = 0;
  // A run of the executable, for that tenant, has taken so much device time.
  virtual void Ran(const Executable&, int64_t, const std::shared_ptr<const Share>&) {}
  // Whether it searches for faster kernels; and has those of an executable searched for, at the
  // expense of the tenant of `share`.
  virtual bool searches() const { return false; }
  virtual void Search(const Executable&, const std::shared_ptr<const Share>&) {}
  // Gives back all device memory that this engine keeps and no run in flight uses.
  virtual void ReleaseMemory() = 0;
  // The same for the temporaries of all engines on that device.
  virtual void ReleaseTemporaries(const Device& device) = 0;
};

}  // namespace telegrad
