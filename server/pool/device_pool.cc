#include "server/pool/device_pool.h"

#include <set>
#include <string>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<DevicePool>> DevicePool::Create(
    std::vector<std::unique_ptr<Device>> devices, std::vector<std::string> notes) {
  if (devices.empty()) return InvalidArgument("a pool needs at least one device");
  std::set<std::string> names;
  for (const auto& device : devices) {
    if (!names.insert(device->name()).second) {
      return InvalidArgument("two devices are named ", device->name());
    }
  }
  return std::unique_ptr<DevicePool>(new DevicePool(std::move(devices), std::move(notes)));
}

absl::StatusOr<Device*> DevicePool::Find(std::string_view name) const {
  if (name.empty()) return devices_.front().get();
  std::string known;
  for (const auto& device : devices_) {
    if (device->name() == name) return device.get();
    StrAppend(&known, known.empty() ? "" : ", ", device->name());
  }
  return NotFound("unknown device \"", name.substr(0, 64), "\"; this server has ", known);
}

}  // namespace telegrad
