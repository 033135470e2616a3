// The engine as a daemon has it: its caches of executables.
#pragma once

#include "engine/execution/partitioned_cache.h"
#include "server/session/engine.h"

namespace telegrad {

class CachingEngine final : public Engine {
 public:
  CachingEngine(ExecutableCache* cache, PartitionedCache* partitioned)
      : cache_(cache), partitioned_(partitioned) {}
  std::shared_ptr<const Executable> Find(const Digest& hash, std::span<Device* const> devices,
                                         std::span<const VarValue> variables) override {
    return partitioned_->Find(hash, devices, variables);
  }
  absl::StatusOr<ExecutableCache::Result> Get(const Digest& hash, const FrozenGraph& graph,
                                              std::span<Device* const> devices, Budget* budget,
                                              std::span<const VarValue> variables) override {
    return partitioned_->Get(hash, graph, devices, budget, variables);
  }
  void ReleaseTemporaries(const Device& device) override { cache_->ReleaseTemporaries(device); }

 private:
  ExecutableCache* const cache_;
  PartitionedCache* const partitioned_;
};

}  // namespace telegrad
