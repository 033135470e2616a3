#include "server/data/staging.h"

#include <utility>

#include "devices/api/host_memory.h"
#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<Memory>> AllocStaging(const DevicePool& pool, const Device& device,
                                                     uint64_t bytes) {
  for (const auto& host : pool.devices()) {
    if (host->host_visible()) return host->Alloc(static_cast<int64_t>(bytes));
  }
  return Unimplemented("no device has memory through which ", device.name(),
                       " could be read or written");
}

absl::StatusOr<std::shared_ptr<Memory>> AllocInTransit(Device& device, uint64_t bytes) {
  if (auto lent = device.LendPinned(static_cast<int64_t>(bytes))) return lent;
  return AllocHostMemory(static_cast<int64_t>(bytes));
}

absl::StatusOr<TimelinePoint> EnqueueCopy(SessionQueues& queues, Device& device, BufferView to,
                                          BufferView from, std::span<const TimelinePoint> waits,
                                          QueueKind kind, const Device* other) {
  const bool out = to.memory->host() != nullptr && from.memory->host() == nullptr;
  if (kind == QueueKind::kCopy && out) kind = QueueKind::kCopyOut;
  std::vector<PredictedCommand> commands;
  AddCopy({.to = {0, 0}, .from = {1, 0}, .length = from.length}, device, &commands, other);
  SlicedWork work{.waits = {waits.begin(), waits.end()}};
  TG_ASSIGN_OR_RETURN(work.slices, EncodeSlices(device, std::move(commands)));
  work.bindings = {std::move(to), std::move(from)};
  return queues.Submit(device, kind, std::move(work), {});
}

}  // namespace telegrad
