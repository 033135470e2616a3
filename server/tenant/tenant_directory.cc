// Tenants by name, with the idle ones in the order of their last use, and the debts of tenants
// that were dropped.
#include "server/tenant/tenant_directory.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/identity/principal.h"

namespace telegrad {
namespace {

// Up to this number of debts, no check for settled ones is made.
constexpr size_t kFewDebts = 64;
// Time for which the use of rates is kept for a tenant that is no longer served.
constexpr double kUnservedMs = 3600e3;

absl::Status NotServed(std::string_view name) {
  return absl::PermissionDeniedError(
      StrCat("tenant ", name, " is not served by this server; see --tenants"));
}

}  // namespace

TenantDirectory::TenantDirectory(TenantTable table, int64_t max_idle, MakeEngine make_engine,
                                 Metrics* metrics, const Clock* clock)
    : max_idle_(max_idle),
      make_engine_(std::move(make_engine)),
      metrics_(metrics),
      clock_(clock),
      table_(std::move(table)) {}

absl::StatusOr<std::shared_ptr<Tenant>> TenantDirectory::Find(std::string_view name) {
  if (!IsTenantName(name)) return absl::PermissionDeniedError("expected the name of a tenant");
  std::vector<std::shared_ptr<Tenant>> dropped;  // destroyed without the lock
  const MutexLock lock(mutex_);
  if (const auto it = by_name_.find(ToAbsl(name)); it != by_name_.end()) {
    used_.splice(used_.begin(), used_, it->second);
    return *it->second;
  }
  const Terms terms = TermsOfLocked(name);
  if (terms.quotas == nullptr) return NotServed(name);
  const Accounts accounts(name, *terms.quotas, terms.remedy);
  const auto owed = debts_.find(name);
  used_.push_front(std::make_shared<Tenant>(std::string(name), accounts, make_engine_(accounts),
                                            metrics_,
                                            owed != debts_.end() ? owed->second.share : nullptr));
  by_name_.emplace(std::string(name), used_.begin());
  std::shared_ptr<Tenant> made = used_.front();
  made->Grant(DisksLocked(terms, name), terms.quotas->ModelsOf(name));
  if (owed != debts_.end()) {
    made->Owe(owed->second);
    debts_.erase(owed);
  }
  DropIdle(&dropped);
  return made;
}

absl::Status TenantDirectory::CheckServed(std::string_view name) const {
  const MutexLock lock(mutex_);
  return TermsOfLocked(name).quotas != nullptr ? absl::OkStatus() : NotServed(name);
}

absl::Status TenantDirectory::CheckActsFor(std::string_view front, std::string_view tenant) const {
  if (front == tenant) return absl::OkStatus();
  const MutexLock lock(mutex_);
  const Terms terms = TermsOfLocked(front);
  if (terms.quotas != nullptr && IsTenantName(tenant) && terms.quotas->ActsFor(tenant)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      StrCat("tenant ", front, " may not act for others; grant it with acts_for = NAME below [",
             front, "] in the file of --tenants"));
}

void TenantDirectory::Replace(TenantTable table) {
  std::vector<std::shared_ptr<Tenant>> dropped;  // destroyed without the lock
  const MutexLock lock(mutex_);
  table_ = std::move(table);
  for (auto it = used_.begin(); it != used_.end();) {
    const auto tenant = it++;
    const Terms terms = TermsOfLocked((*tenant)->name);
    if (terms.quotas != nullptr) {
      (*tenant)->Limit(*terms.quotas, terms.remedy, clock_->Ns());
      (*tenant)->Grant(DisksLocked(terms, (*tenant)->name),
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
          .remedy = table_.from_file
                        ? StrCat("raise it with NAME = VALUE below [", is_named ? name : "*",
                                 "] in the file of ", table_.flag)
                        : "raise it with --default-quota NAME=VALUE"};
}

DiskGrants TenantDirectory::DisksLocked(const Terms& terms, std::string_view name) const {
  DiskGrants disks = terms.quotas->DisksOf(name);
  disks.flag = table_.flag;
  return disks;
}

void TenantDirectory::ForgetLocked(const Tenant& tenant) {
  debts_[tenant.name] = tenant.Debts(clock_->Ns());
  by_name_.erase(tenant.name);
  if (debts_.size() < 2 * debts_swept_ + kFewDebts) return;
  for (auto it = debts_.begin(); it != debts_.end();) {
    it = IsSettledLocked(it->first, it->second) ? debts_.erase(it) : std::next(it);
  }
  debts_swept_ = debts_.size();
}

// Whether the debts of a tenant of that name equal those of a new one, so that they may be dropped.
// A tenant that is not served has no rates by which its debts would decrease.
bool TenantDirectory::IsSettledLocked(std::string_view name, const TenantDebts& debts) const {
  const Terms terms = TermsOfLocked(name);
  if (debts.disk_bytes > 0) return false;
  if (debts.share.use_count() > 1) return false;  // in debt to others
  const double seconds = static_cast<double>(clock_->Ns() - debts.at_ns) / 1e9;
  if (terms.quotas == nullptr) return seconds * 1e3 > kUnservedMs;
  const auto is_paid = [&](int64_t used, RateUnit unit, Quota rate) {
    return static_cast<double>(used) <=
           seconds * static_cast<double>((*terms.quotas)[rate]) * unit.uses;
  };
  return is_paid(debts.device_ns, kRateOfTime, Quota::kDeviceRate) &&
         is_paid(debts.compile_ns, kRateOfTime, Quota::kCompileRate) &&
         is_paid(debts.requests, kRateOfRequests, Quota::kRequestRate) &&
         is_paid(debts.transferred, kRateOfBytes, Quota::kTransferRate);
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

size_t TenantDirectory::remembered() const {
  const MutexLock lock(mutex_);
  return debts_.size();
}

std::vector<std::shared_ptr<Tenant>> TenantDirectory::All() const {
  std::vector<std::shared_ptr<Tenant>> all;
  {
    const MutexLock lock(mutex_);
    all.assign(used_.begin(), used_.end());
  }
  std::ranges::sort(all, {}, [](const auto& tenant) -> std::string_view { return tenant->name; });
  return all;
}

}  // namespace telegrad
