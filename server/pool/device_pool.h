// The devices that this daemon offers, by name. Fixed for the life of the daemon, so that a Device*
// taken from it stays valid.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad {

class DevicePool {
 public:
  // `notes`: what OpenDevices said. INVALID_ARGUMENT when empty or when two devices share a name.
  static absl::StatusOr<std::unique_ptr<DevicePool>> Create(
      std::vector<std::unique_ptr<Device>> devices, std::vector<std::string> notes = {});

  // The device of that name, the first one for "". NOT_FOUND names those that exist.
  absl::StatusOr<Device*> Find(std::string_view name) const;
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  DevicePool(std::vector<std::unique_ptr<Device>> devices, std::vector<std::string> notes)
      : devices_(std::move(devices)), notes_(std::move(notes)) {}

  std::vector<std::unique_ptr<Device>> devices_;
  const std::vector<std::string> notes_;
};

}  // namespace telegrad
