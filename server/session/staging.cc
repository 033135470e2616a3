#include "server/session/staging.h"

#include <utility>

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

absl::StatusOr<TimelinePoint> EnqueueCopy(Device& device, BufferView to, BufferView from,
                                          std::span<const TimelinePoint> waits) {
  Command copy{.kind = CommandKind::kCopy, .launch = {}, .copy = {}};
  copy.copy = {.to = {0, 0}, .from = {1, 0}, .length = from.length};
  TG_ASSIGN_OR_RETURN(auto commands, device.Encode({std::move(copy)}));
  return device.queue(QueueKind::kCopy)
      .Submit(std::move(commands), {std::move(to), std::move(from)}, waits);
}

}  // namespace telegrad
