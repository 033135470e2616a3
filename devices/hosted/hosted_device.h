// Devices of a driver whose library is opened in processes of their own, one for each device, or
// for each tenant that uses it (tenants_device.h). Here is a device by the contract of devices/api,
// which sends what it is asked to do to its process. When that ends, hangs or loses its hardware,
// the generation of the device is lost, and Recover starts the next. See docs/isolation.md.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "devices/api/device.h"
#include "devices/api/host_queue.h"
#include "devices/hosted/messages.h"
#include "devices/worker/worker_device.h"

namespace telegrad {

struct HostedOptions {
  std::string executable = {};  // empty: telegrad-device-worker beside this program
  std::string prefix;           // of the devices' names: "OPENCL"
  HostedSetup setup;            // but for the device and its generation
  bool by_tenant = false;       // a process for each tenant that uses a device, not one for all
  int64_t most_workers = INT64_MAX;  // at a time, of all tenants of a device
  // See CudaOptions.
  std::function<absl::StatusOr<std::string>(const std::string& arch)> assembler = {};
  // See DriverProcess::Options.
  absl::Duration hang_limit = absl::Seconds(1);
  absl::Duration stuck_limit = absl::Minutes(5);
  absl::Duration run_limit = absl::InfiniteDuration();
  size_t longest_order = kMaxHostedOrder;
  absl::Duration short_life = kShortWorkerLife;
  int queue_capacity = HostQueueOptions{}.capacity;
  absl::Duration wait_limit = HostQueueOptions{}.wait_limit;
  std::vector<std::string> environment = {};  // of the processes, NAME=VALUE
  // Called by the thread that opens a device, or opens it again.
  std::function<void(const WorkerEvent&)> on_event = {};
  std::function<void()> on_over = {};  // see DriverProcess::Options
};

// The target's features by which a driver in a worker asks for HostedOptions::assembler.
inline constexpr char kAskForAssembler[] = "ask for the assembler";

// A device for each that the driver shows, as its own function for that makes them. Each is opened
// once. What cannot be used is left out, and `notes`, which may be null, say why: also where the
// driver ends the process of the first one, which says how many there are.
std::vector<std::unique_ptr<Device>> OpenHosted(const HostedOptions& options,
                                                std::vector<std::string>* notes);

}  // namespace telegrad
