// Writes, reads and copies that a device carries out: those of memory that the host cannot
// address, such as a file's or another device's, go through memory of the host. It is charged to
// the tenant's host_staging, beside the buffers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/device.h"
#include "server/data/payload.h"
#include "server/data/staging.h"
#include "server/session/turn.h"

namespace telegrad {

// What a session has under way through such memory, which is charged until it ends.
struct StagedCopies {
  struct Write {
    TimelinePoint copied;
    uint64_t bytes = 0;
  };
  std::deque<Write> writes;  // whose bytes are on their way to their device
  // Reads, which end when the client has their bytes.
  std::optional<std::weak_ptr<HeldRead>> longer;
  std::deque<std::weak_ptr<HeldRead>> shorts;
};

// Of an operation for whose memory there was no room: waits, as the turn's step, for the first of
// what the session has under way. Null: it has nothing, and the operation fails.
std::optional<Step> AwaitStaged(Turn& turn);

// Host memory through which the buffer's device can copy. What host_staging has no room for is
// charged like a buffer.
absl::StatusOr<std::shared_ptr<Memory>> Stage(const Turn& turn, const Buffer& buffer,
                                              uint64_t bytes);
// Such memory with the payload. There is room for it, because it takes the place of the message
// that was received, which has been charged.
absl::StatusOr<std::shared_ptr<Memory>> StageReceived(const Turn& turn, const Buffer& buffer,
                                                      const Payload& payload);

// Copies the payload to host memory, and has it copied into the buffer.
absl::StatusOr<TimelinePoint> WriteStaged(const Turn& turn, const Payload& payload, uint64_t offset,
                                          const Buffer& buffer);

// Has a part of the buffer copied to `to` once what writes it has ended.
absl::StatusOr<TimelinePoint> CopyOut(const Turn& turn, const Buffer& buffer, uint64_t offset,
                                      uint64_t bytes, const std::shared_ptr<Memory>& to);

// On the queue in which the device runs, so that nothing has to wait for what was before on the
// same device.
absl::StatusOr<TimelinePoint> CopyInto(const Turn& turn, Buffer& to, uint64_t to_offset,
                                       BufferView from, const std::vector<TimelinePoint>& waits,
                                       uint64_t bytes);

// `point` writes the buffer: its failure is the answer of the operation, and the only one.
void WrittenBehind(Turn& turn, Buffer& buffer, const TimelinePoint& point, uint64_t bytes);

// What still uses the buffer, so that the host must not write it: waits for it, as the turn's step.
// kDone: nothing does.
Step AwaitUses(Turn& turn, Buffer& buffer);

}  // namespace telegrad
