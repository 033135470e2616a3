#include "devices/drivers.h"

#include <utility>

#include "devices/cpu/cpu_device.h"
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

constexpr Driver kDrivers[] = {
    {"cpu", &OpenCpus},
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
