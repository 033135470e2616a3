// A function for each driver opens its devices by the options of the daemon; the table behind
// them is the list of drivers.
#include "devices/drivers.h"

#include <algorithm>
#include <utility>

#include "devices/cpu/cpu_device.h"
#include "devices/cuda/cuda_device.h"
#include "devices/disk/disk_device.h"
#include "devices/hip/hip_device.h"
#include "devices/hosted/hosted_device.h"
#include "devices/null/null_device.h"
#include "devices/nv/nv_device.h"
#include "devices/opencl/opencl_device.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

absl::StatusOr<Devices> OpenCpus(const DriverOptions& options, std::vector<std::string>*) {
  const int64_t n = std::max<int64_t>(options.cpu_devices, 1);
  if (options.cpu_memory > 0 && options.cpu_memory < n) {
    return InvalidArgument("CPU memory of ", options.cpu_memory, " bytes for ", n,
                           " devices; expected at least a byte for each, or 0: a share of the "
                           "machine's");
  }
  const int64_t memory =
      (options.cpu_memory > 0 ? options.cpu_memory : DefaultCpuMemory(options.cgroups)) / n;
  Devices devices;
  for (int64_t i = 0; i < n; ++i) {
    // The first get what does not divide.
    const int64_t threads = options.host.threads / n + (i < options.host.threads % n ? 1 : 0);
    CpuOptions cpu;
    cpu.index = static_cast<int>(i);
    cpu.threads = static_cast<int>(std::max<int64_t>(threads, 1));
    cpu.target = options.host;
    cpu.target.threads = cpu.threads;
    cpu.memory_limit = memory;
    if (options.launch_ms > 0) cpu.launch_limit = absl::Milliseconds(options.launch_ms);
    if (options.isolate == Isolation::kNone) {
      TG_ASSIGN_OR_RETURN(devices.emplace_back(), OpenCpu(cpu));
      continue;
    }
    TG_ASSIGN_OR_RETURN(devices.emplace_back(),
                        OpenWorkerDevice({.cpu = cpu,
                                          .by_tenant = options.isolate == Isolation::kTenant,
                                          .hang_limit = absl::Milliseconds(options.worker_hang_ms),
                                          .on_event = options.on_worker}));
  }
  return devices;
}

absl::StatusOr<Devices> OpenNulls(const DriverOptions& options, std::vector<std::string>*) {
  Devices devices;
  for (int i = 0; i < options.null_devices; ++i) {
    devices.push_back(OpenNull({.index = i, .target = options.host}));
  }
  return devices;
}

absl::StatusOr<Devices> OpenDisks(const DriverOptions& options, std::vector<std::string>*) {
  Devices devices;
  for (const bool read_only : {false, true}) {
    for (const std::string& root : read_only ? options.read_only_disk_roots : options.disk_roots) {
      const size_t equals = root.find('=');
      if (equals == root.npos) {
        return InvalidArgument(read_only ? "--disk-root-readonly \"" : "--disk-root \"", root,
                               "\": expected NAME=DIR");
      }
      TG_ASSIGN_OR_RETURN(auto disk, OpenDisk({.name = root.substr(0, equals),
                                               .directory = root.substr(equals + 1),
                                               .read_only = read_only,
                                               .growth = options.disk_growth}));
      devices.push_back(std::move(disk));
    }
  }
  return devices;
}

absl::StatusOr<Devices> OpenRemotes(const DriverOptions& options, std::vector<std::string>* notes) {
  if (!options.open_remotes) return Devices();
  return options.open_remotes(notes);
}

absl::StatusOr<Devices> OpenGpus(const DriverOptions& options, std::vector<std::string>* notes) {
  if (options.cuda_library.empty()) return Devices();
  return OpenCudas({.library = options.cuda_library,
                    .devices = options.cuda_devices,
                    .only = options.only,
                    .memory_limit = options.cuda_memory,
                    .pinned_memory = options.pinned_memory,
                    .assembler = options.cuda_assembler},
                   notes);
}

absl::StatusOr<Devices> OpenAmds(const DriverOptions& options, std::vector<std::string>* notes) {
  if (options.hip_library.empty()) return Devices();
  return OpenHips({.library = options.hip_library,
                   .devices = options.hip_devices,
                   .only = options.only,
                   .memory_limit = options.hip_memory,
                   .pinned_memory = options.pinned_memory},
                  notes);
}

absl::StatusOr<Devices> OpenLoaders(const DriverOptions& options, std::vector<std::string>* notes) {
  if (options.opencl_library.empty()) return Devices();
  return OpenOpenCls({.library = options.opencl_library,
                      .devices = options.opencl_devices,
                      .only = options.only,
                      .memory_limit = options.opencl_memory,
                      .inexact = options.opencl_inexact},
                     notes);
}

absl::StatusOr<Devices> OpenQueues(const DriverOptions& options, std::vector<std::string>* notes) {
  Devices devices;
  for (auto& device : OpenNvs({.devices = options.nv_devices,
                               .only = options.only,
                               .memory_limit = options.nv_memory,
                               .pinned_memory = options.pinned_memory,
                               .assembler = options.nv_assembler},
                              notes)) {
    devices.push_back(std::move(device));
  }
  return devices;
}

using Hosting = std::optional<HostedSetup>;

Hosting HostCuda(const DriverOptions& options) {
  if (options.cuda_library.empty() || options.cuda_devices == 0) return std::nullopt;
  return HostedSetup{.library = options.cuda_library,
                     .devices = options.cuda_devices,
                     .memory_limit = options.cuda_memory,
                     .assembler = options.cuda_assembler ? kAskForAssembler : "",
                     .pinned = options.pinned_memory};
}

Hosting HostHip(const DriverOptions& options) {
  if (options.hip_library.empty() || options.hip_devices == 0) return std::nullopt;
  return HostedSetup{.library = options.hip_library,
                     .devices = options.hip_devices,
                     .memory_limit = options.hip_memory,
                     .pinned = options.pinned_memory};
}

Hosting HostOpenCl(const DriverOptions& options) {
  if (options.opencl_library.empty() || options.opencl_devices == 0) return std::nullopt;
  return HostedSetup{.library = options.opencl_library,
                     .devices = options.opencl_devices,
                     .memory_limit = options.opencl_memory};
}

Hosting HostNv(const DriverOptions& options) {
  if (options.nv_devices == 0 || !options.nv_assembler.ok()) return std::nullopt;
  return HostedSetup{.devices = options.nv_devices,
                     .memory_limit = options.nv_memory,
                     .assembler = *options.nv_assembler,
                     .pinned = options.pinned_memory};
}

constexpr Driver kDrivers[] = {
    {"cpu", &OpenCpus},
    {"cuda", &OpenGpus, "CUDA", &HostCuda},
    {"nv", &OpenQueues, "NV", &HostNv},
    {"hip", &OpenAmds, "HIP", &HostHip},
    {"opencl", &OpenLoaders, "OPENCL", &HostOpenCl},
    {"null", &OpenNulls},
    {"disk", &OpenDisks},
    {"remote", &OpenRemotes},
};

// How long a tenant's process may be at one slice, as on a CPU device in a process. One for all
// tenants is not ended for a slow kernel of one of them.
absl::Duration RunLimit(const DriverOptions& options) {
  if (options.isolate != Isolation::kTenant || options.launch_ms <= 0) {
    return absl::InfiniteDuration();
  }
  return absl::Milliseconds(options.launch_ms) + absl::Milliseconds(options.worker_hang_ms);
}

// Devices of a driver that is opened in processes of its own.
Devices OpenInWorkers(const Driver& driver, HostedSetup setup, const DriverOptions& options,
                      std::vector<std::string>* notes) {
  setup.driver = std::string(driver.name);
  auto devices = OpenHosted({.prefix = std::string(driver.prefix),
                             .setup = std::move(setup),
                             .by_tenant = options.isolate == Isolation::kTenant,
                             .most_workers = options.gpu_workers,
                             .assembler = options.cuda_assembler,
                             .hang_limit = absl::Milliseconds(options.worker_hang_ms),
                             .run_limit = RunLimit(options),
                             .on_event = options.on_worker},
                            notes);
  if (options.isolate != Isolation::kTenant) return devices;
  for (const auto& device : devices) {
    notes->push_back(StrCat(device->name(),
                            ": each tenant that uses it has a worker process of its own, with "
                            "its own memory (--isolate=tenant)"));
  }
  return devices;
}

}  // namespace

std::span<const Driver> Drivers() { return kDrivers; }

absl::StatusOr<Devices> OpenDevices(const DriverOptions& options, std::vector<std::string>* notes) {
  std::vector<std::string> unread;
  if (notes == nullptr) notes = &unread;
  Devices all;
  for (const Driver& driver : kDrivers) {
    Hosting hosting;
    if (driver.hosted != nullptr) hosting = driver.hosted(options);
    if (hosting && options.on_open) options.on_open(std::string(driver.name));
    if (options.isolate == Isolation::kNone) hosting.reset();
    Devices devices;
    if (hosting) {
      devices = OpenInWorkers(driver, *std::move(hosting), options, notes);
    } else {
      TG_ASSIGN_OR_RETURN(devices, driver.open(options, notes));
    }
    for (auto& device : devices) all.push_back(std::move(device));
  }
  return all;
}

absl::StatusOr<Devices> OpenForDaemon(const HostedSetup& setup, HostedOpened* opened) {
  DriverOptions options{.only = {.number = setup.only,
                                 .generation = setup.generation,
                                 .hardware = setup.hardware,
                                 .shown = &opened->shown,
                                 .opened = &opened->hardware},
                        .cuda_library = setup.library,
                        .cuda_devices = setup.devices,
                        .cuda_memory = setup.memory_limit,
                        .hip_library = setup.library,
                        .hip_devices = setup.devices,
                        .hip_memory = setup.memory_limit,
                        .opencl_library = setup.library,
                        .opencl_devices = setup.devices,
                        .opencl_memory = setup.memory_limit,
                        .nv_devices = setup.devices,
                        .nv_memory = setup.memory_limit,
                        .nv_assembler = setup.assembler};
  options.opencl_inexact = setup.inexact;
  if (!setup.assembler.empty()) {
    options.cuda_assembler = [](const std::string&) { return std::string(kAskForAssembler); };
  }
  for (const Driver& driver : kDrivers) {
    if (driver.name == setup.driver && driver.hosted != nullptr) {
      return driver.open(options, &opened->notes);
    }
  }
  return InvalidArgument("no driver ", setup.driver, " for a worker");
}

}  // namespace telegrad
