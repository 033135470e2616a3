// The tenants by name. One that nobody uses is kept with its graphs and executables, so that who
// comes back finds them, until more are idle than may be: then the one that was asked for longest
// ago goes. Its graphs have to be put again; what it has used of its rates, and its turns, are
// remembered until they are as those of somebody new.
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
#include "server/session/tenant.h"

namespace telegrad {

// Thread-safe.
class TenantDirectory {
 public:
  // The engine of a tenant, which charges its accounts.
  using MakeEngine = std::function<std::shared_ptr<Engine>(const Accounts&)>;

  TenantDirectory(TenantTable table, int64_t max_idle, MakeEngine make_engine, Metrics* metrics,
                  const Clock* clock = Clock::Steady());

  // The tenant of that name, the same for all who hold it. PERMISSION_DENIED where the table
  // serves only tenants that it names, or where this is no name.
  absl::StatusOr<std::shared_ptr<Tenant>> Find(std::string_view name);
  // OK if the table serves a tenant of that name.
  absl::Status CheckServed(std::string_view name) const;
  // From now on `table` holds, also for those in use: their limits become those of the table,
  // though they may have more in use. One that it does not serve is found no more.
  void Replace(TenantTable table);
  // Those in use and those kept, by name.
  std::vector<std::shared_ptr<Tenant>> All() const;
  // Of how many that were dropped something is remembered.
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
