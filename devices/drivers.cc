#include "devices/drivers.h"

#include <utility>

#include "devices/cpu/cpu_device.h"
#include "devices/disk/disk_device.h"
#include "devices/null/null_device.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

absl::StatusOr<Devices> OpenCpus(const DriverOptions& options) {
  CpuOptions cpu;
  cpu.target = options.host;
  cpu.threads = options.host.threads;
  cpu.memory_limit = options.cpu_memory;
  TG_ASSIGN_OR_RETURN(std::unique_ptr<Device> device, OpenCpu(cpu));
  Devices devices;
  devices.push_back(std::move(device));
  return devices;
}

absl::StatusOr<Devices> OpenNulls(const DriverOptions& options) {
  Devices devices;
  for (int i = 0; i < options.null_devices; ++i) {
    devices.push_back(OpenNull({.index = i, .target = options.host}));
  }
  return devices;
}

absl::StatusOr<Devices> OpenDisks(const DriverOptions& options) {
  Devices devices;
  for (const bool read_only : {false, true}) {
    for (const std::string& root : read_only ? options.read_only_disk_roots : options.disk_roots) {
      const size_t equals = root.find('=');
      if (equals == root.npos) return InvalidArgument("disk root \"", root, "\" is no NAME=DIR");
      TG_ASSIGN_OR_RETURN(auto disk, OpenDisk({.name = root.substr(0, equals),
                                               .directory = root.substr(equals + 1),
                                               .read_only = read_only,
                                               .growth = options.disk_growth}));
      devices.push_back(std::move(disk));
    }
  }
  return devices;
}

constexpr Driver kDrivers[] = {
    {"cpu", &OpenCpus},
    {"null", &OpenNulls},
    {"disk", &OpenDisks},
};

}  // namespace

std::span<const Driver> Drivers() { return kDrivers; }

absl::StatusOr<Devices> OpenDevices(const DriverOptions& options) {
  Devices all;
  for (const Driver& driver : kDrivers) {
    TG_ASSIGN_OR_RETURN(Devices devices, driver.open(options));
    for (auto& device : devices) all.push_back(std::move(device));
  }
  return all;
}

}  // namespace telegrad
