// Regions by tenant and name, each with the memory that the device opened.
#include "server/serving/device_regions.h"

#include <algorithm>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

absl::Status DeviceRegions::CheckTenant(std::string_view tenant) const {
  if (!enabled()) {
    return Unimplemented(
        "this server takes no CUDA shared memory; start it with --models-cuda-shared-memory "
        "TENANT");
  }
  const auto named = [&](const std::string& name) { return name == "*" || name == tenant; };
  if (std::ranges::any_of(tenants_, named)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat("tenant ", tenant,
             " may not register CUDA shared memory; name it in --models-cuda-shared-memory"));
}

absl::StatusOr<Device*> DeviceRegions::DeviceOf(int64_t device_id) const {
  std::string gpus;
  for (const auto& device : devices_.devices()) {
    if (!device->name().starts_with("CUDA:")) continue;
    if (device->name() == StrCat("CUDA:", device_id)) return device.get();
    StrAppend(&gpus, gpus.empty() ? "" : ", ", device->name());
  }
  if (gpus.empty()) {
    return FailedPrecondition(
        "this server has no CUDA device, and so no CUDA shared memory; `telegrad devices` says "
        "which devices it has, and why others are missing");
  }
  return FailedPrecondition("device_id ", device_id, " is no CUDA device of this server; it has ",
                            gpus);
}

absl::Status DeviceRegions::CheckNewLocked(const std::string& tenant,
                                           const std::string& name) const {
  const auto of = regions_.find(tenant);
  if (of == regions_.end()) return absl::OkStatus();
  if (of->second.contains(name)) return RegionExists(name);
  if (of->second.size() < kMost) return absl::OkStatus();
  return ResourceExhausted("a tenant may have ", kMost, " CUDA shared memory regions");
}

absl::Status DeviceRegions::Register(const std::string& tenant, Region region,
                                     std::string_view handle) {
  TG_RETURN_IF_ERROR(CheckTenant(tenant));
  TG_RETURN_IF_ERROR(CheckRegionName(region.name));
  if (region.bytes < 1 || region.bytes > static_cast<uint64_t>(INT64_MAX)) {
    return InvalidArgument("a CUDA shared memory region of ", region.bytes, " bytes");
  }
  TG_ASSIGN_OR_RETURN(Device* const device, DeviceOf(region.device_id));
  {
    const MutexLock lock(mutex_);
    TG_RETURN_IF_ERROR(CheckNewLocked(tenant, region.name));
  }
  // Without the lock, because a driver takes its time.
  TG_ASSIGN_OR_RETURN(std::shared_ptr<Memory> memory,
                      device->ImportHandle(handle, static_cast<int64_t>(region.bytes)));
  const MutexLock lock(mutex_);
  TG_RETURN_IF_ERROR(CheckNewLocked(tenant, region.name));
  std::string name = region.name;
  regions_[tenant].emplace(std::move(name), Entry{std::move(region), device, std::move(memory)});
  return absl::OkStatus();
}

absl::Status DeviceRegions::Unregister(const std::string& tenant, const std::string& name) {
  TG_RETURN_IF_ERROR(CheckTenant(tenant));
  std::map<std::string, Entry> dropped;  // closed without the lock
  const MutexLock lock(mutex_);
  const auto of = regions_.find(tenant);
  if (of == regions_.end()) return absl::OkStatus();
  if (name.empty()) {
    dropped.swap(of->second);
  } else if (auto node = of->second.extract(name)) {
    dropped.insert(std::move(node));
  }
  if (of->second.empty()) regions_.erase(of);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceRegions::Region>> DeviceRegions::List(
    const std::string& tenant, const std::string& name) const {
  TG_RETURN_IF_ERROR(CheckTenant(tenant));
  std::vector<Region> out;
  const MutexLock lock(mutex_);
  if (const auto of = regions_.find(tenant); of != regions_.end()) {
    for (const auto& [key, entry] : of->second) {
      if (name.empty() || name == key) out.push_back(entry.region);
    }
  }
  if (!name.empty() && out.empty()) return NoRegion(name);
  return out;
}

bool DeviceRegions::Has(const std::string& tenant, const std::string& name) const {
  const MutexLock lock(mutex_);
  const auto of = regions_.find(tenant);
  return of != regions_.end() && of->second.contains(name);
}

absl::StatusOr<std::optional<DevicePart>> DeviceRegions::Find(const std::string& tenant,
                                                              const RegionPart& part) const {
  const MutexLock lock(mutex_);
  const auto of = regions_.find(tenant);
  if (of == regions_.end()) return std::nullopt;
  const auto it = of->second.find(part.region);
  if (it == of->second.end()) return std::nullopt;
  const Entry& entry = it->second;
  TG_RETURN_IF_ERROR(CheckPart(part, entry.region.bytes));
  return DevicePart{entry.device, {entry.memory, part.offset, part.bytes}};
}

}  // namespace telegrad
