// A tenant: its accounts, the graphs that it has put and the engine that keeps its executables.
// Only its own sessions can use them.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "devices/api/device.h"
#include "engine/base/account.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "engine/base/rate_limit.h"
#include "engine/base/share.h"
#include "engine/execution/cache_accounts.h"
#include "server/admin/metrics.h"
#include "server/tenant/engine.h"
#include "server/tenant/graph_store.h"
#include "server/tenant/quotas.h"

namespace telegrad {

// One for each quota. Shared, because memory that is in use outlives the tenant's last session.
class Accounts {
 public:
  // `remedy` says how to raise a quota; the quota's name is appended in its place, "NAME".
  Accounts(std::string_view tenant, const Quotas& quotas, std::string_view remedy);
  // From now on; part of Tenant::Limit.
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

// Device time that a run has taken before it begins, as predicted: given back when this goes,
// unless it was kept, for the run's end to correct it.
class TakenTime {
 public:
  TakenTime() = default;  // of nothing
  TakenTime(std::shared_ptr<RateLimit> limit, int64_t ns) : limit_(std::move(limit)), ns_(ns) {}
  TakenTime(TakenTime&& other) noexcept = default;
  TakenTime& operator=(TakenTime&& other) noexcept {
    limit_.swap(other.limit_);
    std::swap(ns_, other.ns_);
    return *this;
  }
  ~TakenTime() {
    if (limit_ != nullptr) limit_->Correct(ns_, 0);
  }

  explicit operator bool() const { return limit_ != nullptr; }
  int64_t ns() const { return ns_; }
  void Keep() { limit_ = nullptr; }

 private:
  std::shared_ptr<RateLimit> limit_;
  int64_t ns_ = 0;
};

// The debts of a tenant, which outlive it when it is dropped, so that a tenant of the same name has
// them again.
struct TenantDebts {
  std::shared_ptr<Share> share;  // the key of debts to other tenants
  int64_t disk_bytes = 0;
  // Of the bursts.
  int64_t device_ns = 0, compile_ns = 0, requests = 0, transferred = 0;
  int64_t at_ns = 0;  // when that was so
};

struct Tenant {
  // `share` is the tenant's, if something has it already.
  Tenant(std::string name, Accounts accounts, std::shared_ptr<Engine> engine, Metrics* metrics,
         std::shared_ptr<Share> share = nullptr);
  // With the defaults as limits.
  Tenant(std::string name, std::shared_ptr<Engine> engine, Metrics* metrics);

  // Zeroed memory of the device, charged until the last reference is released: to disk_bytes on a
  // disk, otherwise to device_memory. To make room, memory that the engine keeps for later runs is
  // released and, where the device itself is short of memory, that of other tenants' engines.
  // RESOURCE_EXHAUSTED reveals nothing about other tenants.
  absl::StatusOr<std::shared_ptr<Memory>> Alloc(Device& device, int64_t bytes);

  // Its quotas from now on, of all that is limited by them.
  void Limit(const Quotas& quotas, std::string_view remedy, int64_t now_ns);
  TenantDebts Debts(int64_t now_ns) const;
  void Owe(const TenantDebts& debts);
  // A device of the pool as this tenant uses it, the same one each time; see Device::ForTenant. It
  // lives as long as the tenant.
  Device* View(Device& device);
  // The same where it has used the device; else the device itself.
  Device* KnownView(Device& device);
  // Whether it has such a view of a device that may wait for a process of this tenant: see
  // AsksProcess.
  bool asks_process() const { return asks_process_.load(std::memory_order_relaxed); }

  // The disk roots that it may use from now on.
  void Grant(DiskGrants disks, ModelGrants models = {});
  // OK for devices that are no disk, PERMISSION_DENIED where this disk root is not granted.
  absl::Status MayUse(const Device& device, bool write) const;
  // Whether requests for that model are served.
  bool MayInfer(std::string_view model) const;

  // Held by each session until its last run has ended; when the last one is released, the engine
  // releases its memory.
  void Enter() { users_.fetch_add(1, std::memory_order_relaxed); }
  void Leave();

  // Admit a run of this predicted device time, and a job that compiles. The error is
  // RESOURCE_EXHAUSTED, which is counted and says when to retry.
  absl::StatusOr<TakenTime> TakeDeviceTime(int64_t predicted_ns, int64_t now_ns);
  absl::Status TakeCompileTime(int64_t now_ns);
  // Likewise a request, and a transfer of so many bytes.
  absl::Status TakeRequest(int64_t now_ns);
  absl::Status TakeTransfer(uint64_t bytes, int64_t now_ns);

  const std::string name;

 private:
  Mutex views_mutex_;
  // They outlive the engine.
  std::map<const Device*, std::shared_ptr<Device>> views_ TG_GUARDED_BY(views_mutex_);
  std::atomic<bool> asks_process_{false};

 public:
  const Accounts accounts;
  const std::shared_ptr<Share> share;  // of devices and compilers
  const std::shared_ptr<RateLimit> device_time, compile_time, requests, transfers;
  const std::shared_ptr<Engine> engine;
  GraphStore graphs;
  Metrics metrics;        // its own part of those in tenant_metrics.h
  Histogram run_latency;  // of each run, from its arrival to its end

 private:
  absl::Status Take(RateLimit& limit, Quota quota, int64_t amount, int64_t now_ns) const;

  std::atomic<int64_t> users_{0};
  mutable Mutex mutex_;
  DiskGrants disks_ TG_GUARDED_BY(mutex_);
  ModelGrants models_ TG_GUARDED_BY(mutex_);
};

// Charges the tenant's compile time with what this thread does as long as it lives.
class CompileTimer {
 public:
  explicit CompileTimer(Tenant* tenant) : tenant_(*tenant) {}
  ~CompileTimer() { tenant_.compile_time->Correct(0, ThreadCpuNs() - begin_); }
  CompileTimer(const CompileTimer&) = delete;
  CompileTimer& operator=(const CompileTimer&) = delete;

 private:
  Tenant& tenant_;
  const int64_t begin_ = ThreadCpuNs();
};

}  // namespace telegrad
