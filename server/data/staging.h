// Host memory through which bytes are copied between a device and memory that the host cannot
// address, such as a file's or another device's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "server/pool/device_pool.h"
#include "server/pool/session_queues.h"

namespace telegrad {

// Memory that the host and `device` can address, charged to an account.
absl::StatusOr<std::shared_ptr<Memory>> AllocStaging(const DevicePool& pool, const Device& device,
                                                     uint64_t bytes);

// The same for bytes of one transfer, with whatever contents, and charged to none: pinned by
// `device` where that lends some, so that the bytes are not copied once more on their way.
absl::StatusOr<std::shared_ptr<Memory>> AllocInTransit(Device& device, uint64_t bytes);

// Enqueues a copy of all of `from` to the beginning of `to` on `device`, in the session's turn. One
// to memory that the host can address, from memory that it cannot, is a copy out of the device.
// `other`: the device at the other end, if that is not the host.
absl::StatusOr<TimelinePoint> EnqueueCopy(SessionQueues& queues, Device& device, BufferView to,
                                          BufferView from, std::span<const TimelinePoint> waits,
                                          QueueKind kind = QueueKind::kCopy,
                                          const Device* other = nullptr);

inline BufferView Part(const std::shared_ptr<Memory>& memory, uint64_t offset, uint64_t bytes) {
  return {memory, static_cast<int64_t>(offset), static_cast<int64_t>(bytes)};
}

}  // namespace telegrad
