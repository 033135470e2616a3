#include "server/session/tenant_directory.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/identity/principal.h"

namespace telegrad {
namespace {

absl::Status NotServed(std::string_view name) {
  return absl::PermissionDeniedError(StrCat("tenant ", name, " is not served here"));
}

}  // namespace

TenantDirectory::TenantDirectory(TenantTable table, int64_t max_idle, MakeEngine make_engine,
                                 Metrics* metrics)
    : max_idle_(max_idle),
      make_engine_(std::move(make_engine)),
      metrics_(metrics),
      table_(std::move(table)) {}

absl::StatusOr<std::shared_ptr<Tenant>> TenantDirectory::Find(std::string_view name) {
  if (!IsTenantName(name)) return absl::PermissionDeniedError("this is no name of a tenant");
  std::vector<std::shared_ptr<Tenant>> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (const auto it = by_name_.find(ToAbsl(name)); it != by_name_.end()) {
    used_.splice(used_.begin(), used_, it->second);
    return *it->second;
  }
  const Terms terms = TermsOfLocked(name);
  if (terms.quotas == nullptr) return NotServed(name);
  const Accounts accounts(name, *terms.quotas, terms.remedy);
  used_.push_front(
      std::make_shared<Tenant>(std::string(name), accounts, make_engine_(accounts), metrics_));
  by_name_.emplace(std::string(name), used_.begin());
  std::shared_ptr<Tenant> made = used_.front();
  made->Grant(terms.quotas->DisksOf(name), terms.quotas->ModelsOf(name));
  if (const auto it = disk_bytes_.find(name); it != disk_bytes_.end()) {
    made->accounts[Quota::kDiskBytes].Charge(it->second);
    disk_bytes_.erase(it);
  }
  DropIdle(&dropped);
  return made;
}

absl::Status TenantDirectory::CheckServed(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  return TermsOfLocked(name).quotas != nullptr ? absl::OkStatus() : NotServed(name);
}

void TenantDirectory::Replace(TenantTable table) {
  std::vector<std::shared_ptr<Tenant>> dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  table_ = std::move(table);
  for (auto it = used_.begin(); it != used_.end();) {
    const auto tenant = it++;
    const Terms terms = TermsOfLocked((*tenant)->name);
    if (terms.quotas != nullptr) {
      (*tenant)->accounts.Limit(*terms.quotas, terms.remedy);
      (*tenant)->Grant(terms.quotas->DisksOf((*tenant)->name),
                       terms.quotas->ModelsOf((*tenant)->name));
      continue;
    }
    ForgetLocked(**tenant);
    dropped.push_back(std::move(*tenant));
    used_.erase(tenant);
  }
}

TenantDirectory::Terms TenantDirectory::TermsOfLocked(std::string_view name) const {
  const auto named = table_.named.find(name);
  const bool is_named = named != table_.named.end();
  if (!is_named && !table_.others) return {};
  return {.quotas = is_named ? &named->second : &*table_.others,
          .remedy = table_.from_file ? StrCat("raise it with NAME = VALUE below [",
                                              is_named ? name : "*", "] in the file of --tenants")
                                     : "raise it with --default-quota NAME=VALUE"};
}

void TenantDirectory::ForgetLocked(const Tenant& tenant) {
  const int64_t bytes = tenant.accounts[Quota::kDiskBytes].used();
  if (bytes > 0) disk_bytes_[tenant.name] = bytes;
  by_name_.erase(tenant.name);
}

// Nobody takes a tenant that only the list holds while the lock is held.
void TenantDirectory::DropIdle(std::vector<std::shared_ptr<Tenant>>* dropped) {
  int64_t idle = 0;
  for (auto it = used_.begin(); it != used_.end();) {
    const auto tenant = it++;
    if (tenant->use_count() > 1 || ++idle <= max_idle_) continue;
    ForgetLocked(**tenant);
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
