// The devices that this daemon offers, by name, and the queues through which tenants share them.
// Fixed for the life of the daemon, so that a Device* taken from it stays valid.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "server/pool/fair_queue.h"

namespace telegrad {

class DevicePool {
 public:
  // `notes`: what OpenDevices said. INVALID_ARGUMENT when empty or when two devices share a name.
  static absl::StatusOr<std::unique_ptr<DevicePool>> Create(
      std::vector<std::unique_ptr<Device>> devices, std::vector<std::string> notes = {},
      const Clock* clock = Clock::Steady());

  // The device of that name; for "" the first one that takes work, else the first. NOT_FOUND names
  // those that exist.
  absl::StatusOr<Device*> Find(std::string_view name) const;
  const std::vector<std::unique_ptr<Device>>& devices() const { return devices_; }
  const std::vector<std::string>& notes() const { return notes_; }
  // Whether a device is to take new buffers and runs; at first it is. Thread-safe.
  void SetTakesWork(const Device& device, bool takes_work);
  // UNAVAILABLE if an administrator has said so.
  absl::Status CheckTakesWork(const Device& device) const;
  // Its queues, with their names.
  std::vector<std::pair<std::string_view, FairQueue*>> QueuesOf(Device& device) const;
  // Through which all work of the server for that device goes; null if it is not of this pool.
  FairQueue* queue(Device& device, QueueKind kind) const;

 private:
  DevicePool(std::vector<std::unique_ptr<Device>> devices, std::vector<std::string> notes,
             const Clock* clock);

  std::vector<std::unique_ptr<Device>> devices_;
  const std::vector<std::string> notes_;
  absl::flat_hash_map<const Device*, std::unique_ptr<std::atomic<bool>>> drained_;
  // By the devices' own queues; a device may have one for several kinds.
  absl::flat_hash_map<const Queue*, std::unique_ptr<FairQueue>> queues_;
};

}  // namespace telegrad
