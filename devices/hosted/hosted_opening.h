// How a device of a driver is opened in a process of its own: for the first time, after each loss,
// and for each of several tenants.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "devices/api/generations_device.h"
#include "devices/hosted/driver_process.h"
#include "devices/hosted/hosted_device.h"
#include "devices/hosted/messages.h"

namespace telegrad {

struct CurrentProcess;

// Thread-safe, but one Open at a time.
class HostedOpening {
 public:
  // Number `number` of the driver's devices, "CUDA:0", for a tenant; "": for all.
  HostedOpening(HostedOptions options, std::string name, int64_t number,
                std::string_view tenant = "");

  // Starts a process that opens it, at next_start_ns or later. UNAVAILABLE, naming the process, or
  // what the driver says.
  // `said`, which may be null: what the process says that it has opened, where it says something.
  absl::StatusOr<std::unique_ptr<Generation>> Open(uint64_t generation,
                                                   HostedOpened* said = nullptr);
  // What the device is, by a process that opens it and ends. `context_bytes`, which may be null:
  // how much less of the device's memory the driver shows to a second process beside it; 0 where it
  // does not tell.
  absl::StatusOr<HostedFacts> Describe(HostedOpened* said, int64_t* context_bytes) const;
  // After the device was closed for good: the next process is not the successor of a lost one.
  void Forget();
  // When the next is to be started: SteadyNs. No more than a second after the last has ended, and
  // in the past unless several have ended at once.
  int64_t next_start_ns() const;
  // Of the process at hand; null: it has told of none.
  std::shared_ptr<Sensors> sensors() const;

  const std::string& whose() const { return whose_; }  // "CUDA:0's worker of tenant alice"

 private:
  DriverProcess::Options Process(uint64_t generation) const;
  int64_t ContextBytes(const HostedFacts& facts) const;
  absl::StatusOr<std::unique_ptr<Generation>> OpenIn(DriverProcess::Options options,
                                                     HostedOpened* said, pid_t* pid);

  const HostedOptions options_;
  const std::string name_;
  const int64_t number_;
  const std::string whose_;
  const std::shared_ptr<CurrentProcess> current_;
  std::atomic<bool> senses_ = false;
};

}  // namespace telegrad
