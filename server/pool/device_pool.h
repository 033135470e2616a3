// The devices that this daemon offers, by name. Fixed for the life of the daemon, so that a Device*
// taken from it stays valid.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad {

class DevicePool {
 public:
  // INVALID_ARGUMENT when empty or when two devices share a name.
  static absl::StatusOr<std::unique_ptr<DevicePool>> Create(
      std::vector<std::unique_ptr<Device>> devices);

  // The device of that name, the first one for "". NOT_FOUND names those that exist.
  absl::StatusOr<Device*> Find(std::string_view name) const;
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }

 private:
  explicit DevicePool(std::vector<std::unique_ptr<Device>> devices)
      : devices_(std::move(devices)) {}

  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace telegrad
