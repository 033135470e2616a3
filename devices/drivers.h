// The one list of drivers. To add a driver, add a row to kDrivers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"

namespace telegrad {

struct DriverOptions {
  Target host;                          // the processor that this process runs on
  int64_t cpu_memory = 0;               // below 1: a share of the machine's
  std::vector<std::string> disk_roots;  // NAME=DIRECTORY each
  std::vector<std::string> read_only_disk_roots;
  int64_t disk_growth = 0;  // see DiskOptions
  int64_t null_devices = 0;
};

struct Driver {
  std::string_view name;
  // Every device of this kind that the machine has; none is no error.
  absl::StatusOr<std::vector<std::unique_ptr<Device>>> (*open)(const DriverOptions& options);
};

std::span<const Driver> Drivers();

// The devices of all drivers, in the order of the list.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(const DriverOptions& options);

}  // namespace telegrad
