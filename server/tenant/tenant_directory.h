// The tenants by name. A tenant without sessions is kept with its graphs and executables, so that
// it finds them when it returns. When more are idle than the limit, the one that was used longest
// ago is dropped and has to put its graphs again. Its use of its rates, and its debts, are kept
// until they equal those of a new tenant.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "server/tenant/tenant.h"

namespace telegrad {

// Thread-safe.
class TenantDirectory {
 public:
  // The engine of a tenant, which charges its accounts.
  using MakeEngine = std::function<std::shared_ptr<Engine>(const Accounts&)>;

  TenantDirectory(TenantTable table, int64_t max_idle, MakeEngine make_engine, Metrics* metrics,
                  const Clock* clock = Clock::Steady());

  // The tenant of that name, one object for all callers. PERMISSION_DENIED where the table serves
  // only tenants that it names, or where this is no name.
  absl::StatusOr<std::shared_ptr<Tenant>> Find(std::string_view name);
  // OK if the table serves a tenant of that name.
  absl::Status CheckServed(std::string_view name) const;
  // OK if the table lets the tenant `front` act for `tenant`.
  absl::Status CheckActsFor(std::string_view front, std::string_view tenant) const;
  // Replaces the table, also for tenants in use: their limits become those of `table`, even where
  // they have more in use. A tenant that `table` does not serve is not found any more.
  void Replace(TenantTable table);
  // Those in use and those kept, by name.
  std::vector<std::shared_ptr<Tenant>> All() const;
  // The number of dropped tenants whose debts are kept.
  size_t remembered() const;

 private:
  using Used = std::list<std::shared_ptr<Tenant>>;

  struct Terms {
    const Quotas* quotas = nullptr;  // null: not served
    std::string remedy = {};
  };
  Terms TermsOfLocked(std::string_view name) const TG_REQUIRES(mutex_);
  DiskGrants DisksLocked(const Terms& terms, std::string_view name) const TG_REQUIRES(mutex_);
  void ForgetLocked(const Tenant& tenant) TG_REQUIRES(mutex_);
  bool IsSettledLocked(std::string_view name, const TenantDebts& debts) const TG_REQUIRES(mutex_);
  void DropIdle(std::vector<std::shared_ptr<Tenant>>* dropped) TG_REQUIRES(mutex_);

  const int64_t max_idle_;
  const MakeEngine make_engine_;
  Metrics* const metrics_;
  const Clock* const clock_;
  mutable Mutex mutex_;
  TenantTable table_ TG_GUARDED_BY(mutex_);
  std::map<std::string, TenantDebts, std::less<>> debts_
      TG_GUARDED_BY(mutex_);                      // of tenants that were dropped
  size_t debts_swept_ TG_GUARDED_BY(mutex_) = 0;  // so many were left by the last sweep
  Used used_ TG_GUARDED_BY(mutex_);               // most recently found first
  absl::flat_hash_map<std::string, Used::iterator> by_name_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
