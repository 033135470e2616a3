#include "server/session/tenant_directory.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/identity/principal.h"

namespace telegrad {

TenantDirectory::TenantDirectory(TenantTable table, int64_t max_idle, MakeEngine make_engine,
                                 Metrics* metrics)
    : table_(std::move(table)),
      max_idle_(max_idle),
      make_engine_(std::move(make_engine)),
      metrics_(metrics) {}

absl::StatusOr<std::shared_ptr<Tenant>> TenantDirectory::Find(std::string_view name) {
  if (!IsTenantName(name)) return absl::PermissionDeniedError("this is no name of a tenant");
  std::vector<std::shared_ptr<Tenant>> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (const auto it = by_name_.find(ToAbsl(name)); it != by_name_.end()) {
    used_.splice(used_.begin(), used_, it->second);
    return *it->second;
  }
  const auto named = table_.named.find(name);
  if (named == table_.named.end() && !table_.others) {
    return absl::PermissionDeniedError(StrCat("tenant ", name, " is not served here"));
  }
  const bool is_named = named != table_.named.end();
  used_.push_front(Make(std::string(name), is_named ? named->second : *table_.others, is_named));
  by_name_.emplace(std::string(name), used_.begin());
  std::shared_ptr<Tenant> made = used_.front();
  DropIdle(&dropped);
  return made;
}

std::shared_ptr<Tenant> TenantDirectory::Make(const std::string& name, const Quotas& quotas,
                                              bool named) const {
  const std::string section = named ? name : "*";
  const Accounts accounts(name, quotas,
                          table_.from_file ? StrCat("raise it with NAME = VALUE below [", section,
                                                    "] in the file of "
                                                    "--tenants")
                                           : "raise it with --default-quota NAME=VALUE");
  return std::make_shared<Tenant>(name, accounts, make_engine_(accounts), metrics_);
}

// Nobody takes a tenant that only the list holds while the lock is held.
void TenantDirectory::DropIdle(std::vector<std::shared_ptr<Tenant>>* dropped) {
  int64_t idle = 0;
  for (auto it = used_.begin(); it != used_.end();) {
    const auto tenant = it++;
    if (tenant->use_count() > 1 || ++idle <= max_idle_) continue;
    by_name_.erase((*tenant)->name);
    dropped->push_back(std::move(*tenant));
    used_.erase(tenant);
  }
}

std::vector<std::shared_ptr<Tenant>> TenantDirectory::All() const {
  std::vector<std::shared_ptr<Tenant>> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(used_.begin(), used_.end());
  }
  std::ranges::sort(all, {}, [](const auto& tenant) -> std::string_view { return tenant->name; });
  return all;
}

}  // namespace telegrad
