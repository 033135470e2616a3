// Processors whose kernels run in processes of their own: one for a device, or one for each tenant
// that uses it. What is compiled reaches no memory but what that process was given, and its faults
// end that process alone. See docs/isolation.md.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/cpu/cpu_device.h"
#include "devices/worker/short_lives.h"

namespace telegrad {

// What has become of a worker process.
struct WorkerEvent {
  std::string worker;  // "CPU:0's worker of tenant alice"
  pid_t pid = 0;       // of one that has started; 0: none has
  std::string ended;   // how the one before ended, or why none starts; empty: it is the first
  // Where none could be started: until that is tried again. Of one that has been: by how much its
  // start was put off, in all.
  absl::Duration pause = absl::ZeroDuration();
};

struct WorkerDeviceOptions {
  CpuOptions cpu = {};
  // A process and memory for each tenant, in place of one for all.
  bool by_tenant = false;
  std::string executable = {};  // empty: telegrad-device-worker beside this program
  // How long a worker may answer nothing, or go on with a run that was cancelled, before it is
  // replaced.
  absl::Duration hang_limit = absl::Seconds(1);
  absl::Duration short_life = kShortWorkerLife;  // see DeviceWorker::Options
  // Called by a thread of the device.
  std::function<void(const WorkerEvent&)> on_event = {};
};

// A processor as OpenCpu's, but for where its kernels run. UNAVAILABLE where no worker starts.
absl::StatusOr<std::unique_ptr<Device>> OpenWorkerDevice(const WorkerDeviceOptions& options);

}  // namespace telegrad
