// What a session needs of the engine: the executable of a graph, looked up without waiting or made.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/execution/executable_cache.h"
#include "engine/types/var_value.h"

namespace telegrad {

// Thread-safe.
class Engine {
 public:
  virtual ~Engine() = default;
  // The executable if it exists; never compiles.
  virtual std::shared_ptr<const Executable> Find(const Digest& hash, Device& device,
                                                 std::span<const VarValue> variables) = 0;
  // Schedules and compiles where needed; may take long.
  virtual absl::StatusOr<ExecutableCache::Result> Get(const Digest& hash, const FrozenGraph& graph,
                                                      Device& device, Budget* budget,
                                                      std::span<const VarValue> variables) = 0;
  // Gives back the memory for temporaries that no run in flight uses.
  virtual void ReleaseTemporaries(const Device& device) = 0;
};

}  // namespace telegrad
