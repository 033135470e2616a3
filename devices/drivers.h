// The one list of drivers. To add a driver, add a row to kDrivers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "devices/api/generations_device.h"
#include "devices/cpu/cgroup_memory.h"
#include "devices/hosted/messages.h"
#include "devices/worker/worker_device.h"

namespace telegrad {

// Where the kernels of processors run, and where the drivers of GPUs are opened: see
// docs/isolation.md.
enum class Isolation : uint8_t {
  kNone,    // in this process
  kDevice,  // in a worker process for each device
  kTenant,  // in one for each tenant on each device
};

struct DriverOptions {
  Target host = {};         // the processor that this process runs on
  int64_t cpu_memory = 0;   // of all CPU devices; below 1: DefaultCpuMemory
  Cgroups cgroups = {};     // which limit that
  int64_t cpu_devices = 1;  // which share its threads and memory
  int64_t launch_ms = 0;    // see CpuOptions::launch_limit; 0: any
  Isolation isolate = Isolation::kNone;
  int64_t worker_hang_ms = 1000;  // see WorkerDeviceOptions::hang_limit
  int64_t gpu_workers = 32;       // see HostedOptions::most_workers
  std::function<void(const WorkerEvent&)> on_worker = {};
  // Before a driver is asked for devices of which it needs a library or another process to tell,
  // which may take any time: what it is about.
  std::function<void(const std::string& driver)> on_open = {};
  OneDevice only = {};                       // of the devices of GPUs' drivers
  std::vector<std::string> disk_roots = {};  // NAME=DIRECTORY each
  std::vector<std::string> read_only_disk_roots = {};
  int64_t disk_growth = 0;  // see DiskOptions
  int64_t null_devices = 0;
  // Opens the devices of other servers, where there are any: their driver needs gRPC, which not
  // every program that has devices links.
  std::function<absl::StatusOr<std::vector<std::unique_ptr<Device>>>(std::vector<std::string>*)>
      open_remotes = {};
  int64_t pinned_memory = 0;      // of CUDA, HIP and NV devices, see CudaOptions
  std::string cuda_library = "";  // see CudaOptions; none for ""
  int64_t cuda_devices = -1;
  int64_t cuda_memory = 0;
  std::function<absl::StatusOr<std::string>(const std::string& arch)> cuda_assembler = {};
  std::string hip_library = "";  // see HipOptions; none for ""
  int64_t hip_devices = -1;
  int64_t hip_memory = 0;
  std::string opencl_library = "";  // see OpenClOptions; none for ""
  int64_t opencl_devices = 0;
  int64_t opencl_memory = 0;
  bool opencl_inexact = false;
  int64_t nv_devices = 0;  // see NvOptions
  int64_t nv_memory = 0;
  absl::StatusOr<std::string> nv_assembler = absl::NotFoundError("none was looked for");
};

struct Driver {
  std::string_view name;
  // Every device of this kind that the machine has; none is no error. `notes` gets a line for each
  // that it has and that cannot be used, or for why it has none.
  absl::StatusOr<std::vector<std::unique_ptr<Device>>> (*open)(const DriverOptions& options,
                                                               std::vector<std::string>* notes);
  // Of a driver that can be opened in processes of its own: how its devices' names begin, and what
  // such a process is told. Nothing where the options have none of its devices.
  std::string_view prefix = "";
  std::optional<HostedSetup> (*hosted)(const DriverOptions& options) = nullptr;
};

std::span<const Driver> Drivers();

// The devices of all drivers, in the order of the list. `notes` may be null.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenDevices(
    const DriverOptions& options, std::vector<std::string>* notes = nullptr);

// What telegrad-device-worker opens for a daemon: see HostedOpener.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> OpenForDaemon(const HostedSetup& setup,
                                                                   HostedOpened* opened);

}  // namespace telegrad
