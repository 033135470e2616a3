// Messages on a stream socket, each a head and a payload: their lengths, 32 bits each,
// little-endian, then the one and the other. The payload is not touched on the way to where it
// belongs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/net/checksum.h"
#include "engine/net/stream_socket.h"

namespace telegrad {

absl::Status SendFrame(StreamSocket& socket, std::string_view head,
                       std::span<const std::byte> payload);

struct Frame {
  std::string head;
  uint32_t payload_bytes = 0;  // to be received next
};
// INVALID_ARGUMENT where either is longer than it may be.
absl::StatusOr<Frame> ReceiveFrame(StreamSocket& socket, uint32_t max_head, uint32_t max_payload);

// A payload. Its checksum, taken while it is in the caches.
absl::StatusOr<uint32_t> ReceiveChecked(StreamSocket& socket, std::span<std::byte> into,
                                        Checksum kind = Checksum::kCrc32c);
// A payload that is not wanted.
absl::Status SkipPayload(StreamSocket& socket, uint32_t bytes);

}  // namespace telegrad
