// The table of devices with a fair queue for each of their queues, and the set of devices that
// take no new work.
#include "server/pool/device_pool.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::unique_ptr<DevicePool>> DevicePool::Create(
    std::vector<std::unique_ptr<Device>> devices, std::vector<std::string> notes,
    const Clock* clock) {
  if (devices.empty()) return InvalidArgument("a pool needs at least one device");
  std::set<std::string> names;
  for (const auto& device : devices) {
    if (!names.insert(device->name()).second) {
      return InvalidArgument("two devices are named ", device->name());
    }
  }
  return std::unique_ptr<DevicePool>(new DevicePool(std::move(devices), std::move(notes), clock));
}

DevicePool::DevicePool(std::vector<std::unique_ptr<Device>> devices, std::vector<std::string> notes,
                       const Clock* clock)
    : devices_(std::move(devices)), notes_(std::move(notes)) {
  for (const auto& device : devices_) {
    drained_[device.get()] = std::make_unique<std::atomic<bool>>(false);
    for (const QueueKind kind : {QueueKind::kCompute, QueueKind::kCopy, QueueKind::kCopyOut}) {
      Queue* const queue = &device->queue(kind);
      std::unique_ptr<FairQueue>& fair = queues_[queue];
      if (fair == nullptr) fair = std::make_unique<FairQueue>(queue, clock);
    }
  }
}

FairQueue* DevicePool::queue(Device& device, QueueKind kind) const {
  const auto it = queues_.find(&device.queue(kind));
  return it == queues_.end() ? nullptr : it->second.get();
}

void DevicePool::SetTakesWork(const Device& device, bool takes_work) {
  drained_.at(&device)->store(!takes_work, std::memory_order_relaxed);
}

absl::Status DevicePool::CheckTakesWork(const Device& device) const {
  const auto it = drained_.find(&device);
  if (it == drained_.end() || !it->second->load(std::memory_order_relaxed)) return absl::OkStatus();
  return absl::UnavailableError(StrCat(
      device.name(), " takes no new work, as an administrator has said; use another device"));
}

std::vector<std::pair<std::string_view, FairQueue*>> DevicePool::QueuesOf(Device& device) const {
  FairQueue* const compute = queue(device, QueueKind::kCompute);
  FairQueue* const copy = queue(device, QueueKind::kCopy);
  FairQueue* const out = queue(device, QueueKind::kCopyOut);
  if (compute == copy) return {{"compute", compute}};
  if (copy == out) return {{"compute", compute}, {"copy", copy}};
  return {{"compute", compute}, {"copy", copy}, {"copy_out", out}};
}

absl::StatusOr<Device*> DevicePool::Find(std::string_view name) const {
  if (name.empty()) {
    const auto first = std::ranges::find_if(
        devices_, [this](const auto& device) { return CheckTakesWork(*device).ok(); });
    return first == devices_.end() ? devices_.front().get() : first->get();
  }
  std::string known;
  for (const auto& device : devices_) {
    if (device->name() == name) return device.get();
    // Which disk roots there are is for those who are granted them.
    if (device->accepts() == ProgramLevel::kNothing) continue;
    StrAppend(&known, known.empty() ? "" : ", ", device->name());
  }
  return NotFound("unknown device \"", name.substr(0, 64), "\"; this server has ", known,
                  ", and the disk roots that `telegrad devices` shows");
}

}  // namespace telegrad
