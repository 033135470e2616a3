// The CUDA shared memory extension: memory of a GPU of this machine that a client has allocated and
// exported as a handle, from which inputs are copied and to which outputs are. A region belongs to
// one tenant. What a handle names the driver alone knows, and a handle is all that it takes to
// reach the memory of any process that shares it; so only tenants that the daemon's flags name may
// register handles. The driver closes a region when it was unregistered and the last request that
// uses it has ended.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "engine/base/mutex.h"
#include "server/pool/device_pool.h"
#include "server/serving/shared_regions.h"

namespace telegrad {

// Where a tensor is in the memory of a device.
struct DevicePart {
  Device* device = nullptr;  // of the daemon's pool
  BufferView view;
};

// Thread-safe.
class DeviceRegions {
 public:
  struct Region {
    std::string name;
    int64_t device_id = 0;  // as the driver counts: that of CUDA:0 is 0
    uint64_t bytes = 0;
  };
  static constexpr size_t kMost = SharedRegions::kMost;  // of one tenant

  // `tenants` may register regions; "*": all may. `devices` outlives it.
  DeviceRegions(std::vector<std::string> tenants, const DevicePool* devices)
      : tenants_(std::move(tenants)), devices_(*devices) {}

  bool enabled() const { return !tenants_.empty(); }
  // `handle`: 64 bytes, a cudaIpcMemHandle_t. FAILED_PRECONDITION where there is no such device.
  absl::Status Register(const std::string& tenant, Region region, std::string_view handle);
  // "": all of the tenant's.
  absl::Status Unregister(const std::string& tenant, const std::string& name);
  // By name; "": all of the tenant's.
  absl::StatusOr<std::vector<Region>> List(const std::string& tenant,
                                           const std::string& name) const;
  bool Has(const std::string& tenant, const std::string& name) const;
  // None where the tenant has no region of that name; INVALID_ARGUMENT for a part outside of it.
  absl::StatusOr<std::optional<DevicePart>> Find(const std::string& tenant,
                                                 const RegionPart& part) const;

 private:
  struct Entry {
    Region region;
    Device* device = nullptr;
    std::shared_ptr<Memory> memory;
  };
  absl::Status CheckTenant(std::string_view tenant) const;
  absl::StatusOr<Device*> DeviceOf(int64_t device_id) const;
  absl::Status CheckNewLocked(const std::string& tenant, const std::string& name) const
      TG_REQUIRES(mutex_);

  const std::vector<std::string> tenants_;
  const DevicePool& devices_;
  mutable Mutex mutex_;
  std::map<std::string, std::map<std::string, Entry>> regions_
      TG_GUARDED_BY(mutex_);  // by tenant and name
};

}  // namespace telegrad
