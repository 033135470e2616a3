// Who pays and who sees what: a tenant's accounts, the graphs that it has put and the engine that
// keeps its executables. Nobody else's sessions reach any of them.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "devices/api/device.h"
#include "engine/base/account.h"
#include "engine/base/clock.h"
#include "engine/base/rate_limit.h"
#include "engine/base/share.h"
#include "engine/execution/cache_accounts.h"
#include "server/admin/metrics.h"
#include "server/session/engine.h"
#include "server/session/graph_store.h"
#include "server/session/quotas.h"

namespace telegrad {

// One for each quota. Shared, because memory that is in use outlives the tenant's last session.
class Accounts {
 public:
  // `remedy` says how to raise a quota; the quota's name is appended in its place, "NAME".
  Accounts(std::string_view tenant, const Quotas& quotas, std::string_view remedy);
  // From now on; see TenantDirectory::Replace.
  void Limit(const Quotas& quotas, std::string_view remedy) const;
  Account& operator[](Quota quota) const { return *shared(quota); }
  const std::shared_ptr<Account>& shared(Quota quota) const {
    return accounts_[static_cast<size_t>(quota)];
  }
  // Those that an engine charges.
  CacheAccounts for_caches() const {
    return {.device_memory = shared(Quota::kDeviceMemory), .cache = shared(Quota::kCacheBytes)};
  }

 private:
  std::array<std::shared_ptr<Account>, kNumQuotas> accounts_;
};

struct Tenant {
  Tenant(std::string name, Accounts accounts, std::shared_ptr<Engine> engine, Metrics* metrics);
  // With the defaults as limits.
  Tenant(std::string name, std::shared_ptr<Engine> engine, Metrics* metrics);

  // Zeroed memory of the device, charged until the last reference goes: to disk_bytes on a disk,
  // else to device_memory. What the engine keeps for its next runs makes room, where the device is
  // short of memory also what those of other tenants keep. RESOURCE_EXHAUSTED tells nothing about
  // others.
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(Device& device, int64_t bytes);

  // The disk roots that it may use from now on.
  void Grant(DiskGrants disks, ModelGrants models = {});
  // OK for devices that are no disk, PERMISSION_DENIED where this disk root is not granted.
  absl::Status MayUse(const Device& device, bool write) const;
  // Whether requests for that model are served.
  bool MayInfer(std::string_view model) const;

  // Of sessions, from their first moment to their last run's end: when the last one goes, the
  // engine gives its memory back.
  void Enter() { users_.fetch_add(1, std::memory_order_relaxed); }
  void Leave();

  // Of a run that is predicted to take so long on devices, and of a job that compiles. The error,
  // counted, is RESOURCE_EXHAUSTED and says when to try again.
  absl::Status TakeDeviceTime(int64_t predicted_ns, int64_t now_ns);
  absl::Status TakeCompileTime(int64_t now_ns);

  const std::string name;
  const Accounts accounts;
  const std::shared_ptr<const Share> share;  // of devices and compilers
  RateLimit device_time, compile_time;
  const std::shared_ptr<Engine> engine;
  GraphStore graphs;
  Metrics metrics;  // its own part of those in tenant_metrics.h

 private:
  std::atomic<int64_t> users_{0};
  mutable std::mutex mutex_;
  DiskGrants disks_;    // under it
  ModelGrants models_;  // likewise
};

// Charges the tenant's compile time with what this thread does as long as it lives.
class CompileTimer {
 public:
  explicit CompileTimer(Tenant* tenant) : tenant_(*tenant) {}
  ~CompileTimer() { tenant_.compile_time.Correct(0, ThreadCpuNs() - begin_); }
  CompileTimer(const CompileTimer&) = delete;
  CompileTimer& operator=(const CompileTimer&) = delete;

 private:
  Tenant& tenant_;
  const int64_t begin_ = ThreadCpuNs();
};

}  // namespace telegrad
