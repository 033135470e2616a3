// Copies between regions in the memory of devices and memory of the host, on behalf of a tenant,
// for tensors that a run cannot take from there or leave there.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "server/pool/session_queues.h"
#include "server/serving/device_regions.h"
#include "server/tenant/environment.h"
#include "server/tenant/tenant.h"

namespace telegrad {

class DeviceCopies : public std::enable_shared_from_this<DeviceCopies> {
 public:
  // `env` outlives it.
  DeviceCopies(const Environment& env, std::shared_ptr<Tenant> tenant);

  // Enqueues a copy; each begins when the one before it has ended. The bytes in between are charged
  // to the tenant's host_staging for as long as this object is there. The bytes that are fetched
  // are there once Then is called; those to be stored are read before Store returns.
  absl::StatusOr<std::span<const uint8_t>> Fetch(const DevicePart& from);
  absl::Status Store(const DevicePart& to, std::span<const uint8_t> bytes);

  // Calls `then` once all copies have ended, on a thread for work that takes longer, or at once
  // where there is none.
  void Then(std::function<void(const absl::Status&)> then);

 private:
  absl::StatusOr<std::shared_ptr<Memory>> NewStaging(const Device& device, int64_t bytes);
  absl::Status Enqueue(Device& device, BufferView to, BufferView from);

  const Environment& env_;
  const std::shared_ptr<Tenant> tenant_;
  SessionQueues queues_;
  std::vector<std::shared_ptr<Memory>> memories_;
  std::vector<Reservation> paid_;
  std::vector<TimelinePoint> last_;  // at most one
};

}  // namespace telegrad
