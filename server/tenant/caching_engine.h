// The engine of one tenant: its caches of executables, and the memory that they keep, charged to
// its accounts. Below, all tenants share what is compiled.
#pragma once

#include <memory>
#include <utility>

#include "engine/execution/partitioned_cache.h"
#include "engine/execution/shared_caches.h"
#include "server/tenant/engine.h"

namespace telegrad {

class CachingEngine final : public Engine {
 public:
  // `run_bytes`: what a run may have at a time; 0: no limit.
  CachingEngine(const ExecutableCache::Limits& limits, std::shared_ptr<SharedCaches> shared,
                CacheAccounts accounts, int64_t run_bytes = 0)
      : shared_(std::move(shared)),
        accounts_(std::move(accounts)),
        cache_(limits, shared_, accounts_),
        partitioned_(&cache_, {.executables = limits.executables, .run_bytes = run_bytes}) {}

  std::shared_ptr<const Executable> Find(const Digest& hash, std::span<Device* const> devices,
                                         std::span<const VarValue> variables) override {
    return partitioned_.Find(hash, devices, variables);
  }
  absl::StatusOr<ExecutableCache::Result> Get(const Digest& hash, const FrozenGraph& graph,
                                              std::span<Device* const> devices, Budget* budget,
                                              std::span<const VarValue> variables) override {
    auto result = partitioned_.Get(hash, graph, devices, budget, variables);
    DropExcess();
    return result;
  }
  void Ran(const Executable& executable, int64_t device_ns,
           const std::shared_ptr<const Share>& share) override {
    if (KernelHeat* const heat = shared_->kernels.heat(); heat != nullptr) {
      heat->Spent(executable.kernels(), device_ns, share);
    }
  }
  bool searches() const override { return shared_->kernels.heat() != nullptr; }
  void Search(const Executable& executable, const std::shared_ptr<const Share>& share) override {
    if (searches()) shared_->kernels.heat()->Want(executable.kernels(), share);
  }
  void ReleaseMemory() override {
    cache_.ReleaseTemporaries();
    partitioned_.ReleaseMemory();
  }
  void ReleaseTemporaries(const Device& device) override { shared_->temporaries->Release(device); }

 private:
  // Evicts the least recently used entries until the rest is within the quota.
  void DropExcess() {
    while (accounts_.cache != nullptr && accounts_.cache->used() > accounts_.cache->limit()) {
      const auto one = cache_.OldestUse(), several = partitioned_.OldestUse();
      if (!one && !several) return;
      if (!several || (one && *one < *several)) {
        cache_.DropOldest();
      } else {
        partitioned_.DropOldest();
      }
    }
  }

  const std::shared_ptr<SharedCaches> shared_;
  const CacheAccounts accounts_;
  ExecutableCache cache_;
  PartitionedCache partitioned_;
};

}  // namespace telegrad
