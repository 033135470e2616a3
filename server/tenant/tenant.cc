// Makes the accounts of a tenant from its quotas, changes their limits when the quotas change,
// and checks what the tenant may use.
#include "server/tenant/tenant.h"

#include <algorithm>
#include <utility>

#include "devices/api/preparing_queue.h"
#include "engine/base/status.h"
#include "engine/execution/charged_memory.h"

namespace telegrad {
namespace {

std::shared_ptr<RateLimit> RateOf(const Accounts& accounts, RateUnit unit, Quota rate,
                                  Quota burst) {
  return std::make_shared<RateLimit>(unit, accounts[rate].name(), accounts[rate].limit(),
                                     std::string(AllQuotas()[static_cast<size_t>(burst)].name),
                                     accounts[burst].limit(), accounts[rate].remedy());
}

// Empty for a device that is no disk.
std::string_view DiskRootOf(const Device& device) {
  constexpr std::string_view kDisk = "DISK:";
  const std::string_view name = device.name();
  return name.starts_with(kDisk) ? name.substr(kDisk.size()) : std::string_view();
}

std::string RemedyFor(size_t quota, std::string_view remedy) {
  std::string how(remedy);
  if (const size_t at = how.find("NAME"); at != std::string::npos) {
    how.replace(at, 4, AllQuotas()[quota].name);
  }
  return how;
}

}  // namespace

Accounts::Accounts(std::string_view tenant, const Quotas& quotas, std::string_view remedy) {
  for (size_t q = 0; q < accounts_.size(); ++q) {
    accounts_[q] = std::make_shared<Account>(StrCat(AllQuotas()[q].name, " of tenant ", tenant),
                                             quotas[static_cast<Quota>(q)], RemedyFor(q, remedy));
  }
}

void Accounts::Limit(const Quotas& quotas, std::string_view remedy) const {
  for (size_t q = 0; q < accounts_.size(); ++q) {
    accounts_[q]->SetLimit(quotas[static_cast<Quota>(q)], RemedyFor(q, remedy));
  }
}

Tenant::Tenant(std::string n, Accounts a, std::shared_ptr<Engine> e, Metrics* metrics,
               std::shared_ptr<Share> s)
    : name(std::move(n)),
      accounts(std::move(a)),
      share(s != nullptr ? std::move(s) : std::make_shared<Share>(name)),
      device_time(RateOf(accounts, kRateOfTime, Quota::kDeviceRate, Quota::kDeviceBurst)),
      compile_time(RateOf(accounts, kRateOfTime, Quota::kCompileRate, Quota::kCompileBurst)),
      requests(RateOf(accounts, kRateOfRequests, Quota::kRequestRate, Quota::kRequestBurst)),
      transfers(RateOf(accounts, kRateOfBytes, Quota::kTransferRate, Quota::kTransferBurst)),
      engine(std::move(e)),
      graphs(accounts.shared(Quota::kGraphs), accounts.shared(Quota::kGraphBytes), metrics) {
  share->SetWeight(accounts[Quota::kWeight].limit());
}

void Tenant::Limit(const Quotas& quotas, std::string_view remedy, int64_t now_ns) {
  accounts.Limit(quotas, remedy);
  share->SetWeight(quotas[Quota::kWeight]);
  const auto limit = [&](RateLimit& of, Quota rate, Quota burst) {
    of.Limit(quotas[rate], quotas[burst], accounts[rate].remedy(), now_ns);
  };
  limit(*device_time, Quota::kDeviceRate, Quota::kDeviceBurst);
  limit(*compile_time, Quota::kCompileRate, Quota::kCompileBurst);
  limit(*requests, Quota::kRequestRate, Quota::kRequestBurst);
  limit(*transfers, Quota::kTransferRate, Quota::kTransferBurst);
}

TenantDebts Tenant::Debts(int64_t now_ns) const {
  return {.share = share,
          .disk_bytes = accounts[Quota::kDiskBytes].used(),
          .device_ns = device_time->used(now_ns),
          .compile_ns = compile_time->used(now_ns),
          .requests = requests->used(now_ns),
          .transferred = transfers->used(now_ns),
          .at_ns = now_ns};
}

void Tenant::Owe(const TenantDebts& debts) {
  accounts[Quota::kDiskBytes].Charge(debts.disk_bytes);
  device_time->Use(debts.device_ns, debts.at_ns);
  compile_time->Use(debts.compile_ns, debts.at_ns);
  requests->Use(debts.requests, debts.at_ns);
  transfers->Use(debts.transferred, debts.at_ns);
}

absl::Status Tenant::Take(RateLimit& limit, Quota quota, int64_t amount, int64_t now_ns) const {
  absl::Status taken = limit.Take(amount, now_ns);
  if (!taken.ok()) accounts[quota].CountRefused();
  return taken;
}

absl::StatusOr<TakenTime> Tenant::TakeDeviceTime(int64_t predicted_ns, int64_t now_ns) {
  TG_RETURN_IF_ERROR(Take(*device_time, Quota::kDeviceRate, predicted_ns, now_ns));
  return TakenTime(device_time, predicted_ns);
}

absl::Status Tenant::TakeCompileTime(int64_t now_ns) {
  return Take(*compile_time, Quota::kCompileRate, 0, now_ns);
}

absl::Status Tenant::TakeRequest(int64_t now_ns) {
  return Take(*requests, Quota::kRequestRate, 1, now_ns);
}

absl::Status Tenant::TakeTransfer(uint64_t bytes, int64_t now_ns) {
  return Take(*transfers, Quota::kTransferRate,
              static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX)), now_ns);
}

absl::StatusOr<std::shared_ptr<Memory>> Tenant::Alloc(Device& device, int64_t bytes) {
  const std::shared_ptr<Account>& account =
      accounts.shared(DiskRootOf(device).empty() ? Quota::kDeviceMemory : Quota::kDiskBytes);
  const int64_t charge = ChargeOf(bytes);
  auto reservation = Reservation::Try(account, charge);
  if (!reservation) {
    engine->ReleaseMemory();
    reservation = Reservation::Try(account, charge);
  }
  if (!reservation) return account->Refuse(charge);
  auto memory = device.Alloc(bytes);
  if (absl::IsResourceExhausted(memory.status())) {
    engine->ReleaseMemory();
    engine->ReleaseTemporaries(device);
    memory = device.Alloc(bytes);
  }
  if (absl::IsResourceExhausted(memory.status())) return NoRoom(device, bytes);
  TG_RETURN_IF_ERROR(memory.status());
  return Charged(*std::move(memory), *std::move(reservation));
}

Device* Tenant::View(Device& device) {
  const MutexLock lock(views_mutex_);
  const auto known = views_.find(&device);
  if (known != views_.end()) return known->second == nullptr ? &device : known->second.get();
  std::shared_ptr<Device>& view = views_[&device];
  view = device.ForTenant(name);
  if (view != nullptr && AsksProcess(*view)) asks_process_ = true;
  return view == nullptr ? &device : view.get();
}

Device* Tenant::KnownView(Device& device) {
  const MutexLock lock(views_mutex_);
  const auto known = views_.find(&device);
  return known == views_.end() || known->second == nullptr ? &device : known->second.get();
}

void Tenant::Grant(DiskGrants disks, ModelGrants models) {
  const MutexLock lock(mutex_);
  disks_ = std::move(disks);
  models_ = std::move(models);
}

bool Tenant::MayInfer(std::string_view model) const {
  const MutexLock lock(mutex_);
  return models_.May(model);
}

absl::Status Tenant::MayUse(const Device& device, bool write) const {
  const std::string_view root = DiskRootOf(device);
  if (root.empty()) return absl::OkStatus();
  const MutexLock lock(mutex_);
  if (write ? disks_.MayWrite(root) : disks_.MayRead(root)) return absl::OkStatus();
  return absl::PermissionDeniedError(StrCat("tenant ", name, " may not ", write ? "write" : "read",
                                            " ", device.name(), "; grant it with ",
                                            write ? "disk_write" : "disk_read", " = ", root,
                                            " below [", name, "] in the file of ", disks_.flag));
}

void Tenant::Leave() {
  if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) engine->ReleaseMemory();
}

Tenant::Tenant(std::string n, std::shared_ptr<Engine> e, Metrics* metrics)
    : Tenant(n, Accounts(n, Quotas(), "--default-quota NAME=VALUE raises it"), std::move(e),
             metrics) {
  Grant(Quotas().DisksOf(name), Quotas().ModelsOf(name));
}

}  // namespace telegrad
