// Splits and assembles messages whose last field is a large payload, without copying the payload
// through protobuf. A message arrives as a list of byte spans; any field, and any tag, may be split
// over several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace telegrad {

using ByteSpan = std::span<const uint8_t>;

struct Envelope {
  std::string head;               // every field but the payload, a message of its own
  std::vector<ByteSpan> payload;  // its bytes, as parts of the spans given
  uint64_t payload_bytes = 0;
};

// INVALID_ARGUMENT when the message is not well-formed protobuf on its top level. As protobuf has
// it, the last payload counts where there are several.
absl::Status SplitEnvelope(std::span<const ByteSpan> message, int payload_field,
                           Envelope* envelope);

// A message with several payloads: every occurrence of the field, in order.
struct Payloads {
  std::string head;  // every other field, a message of its own
  std::vector<std::vector<ByteSpan>> payloads;
};

// INVALID_ARGUMENT as SplitEnvelope; RESOURCE_EXHAUSTED for a head of more than `most_head` bytes,
// or more than `most` payloads.
absl::Status SplitPayloads(std::span<const ByteSpan> message, int payload_field, uint64_t most_head,
                           size_t most, Payloads* out);

// The length of the head, computed without copying it.
absl::StatusOr<uint64_t> HeadBytes(std::span<const ByteSpan> message, int payload_field);

// How often `field` occurs on the top level of a message, whatever its type.
absl::StatusOr<int64_t> CountFields(std::string_view message, int field);

// The bytes that precede `bytes` of payload: the serialized head, then the payload's tag and
// length.
std::string EnvelopeHead(std::string head, int payload_field, uint64_t bytes);

// Appends a field of bytes to a serialized message, or its beginning, which the bytes follow, or a
// field of an integer.
void AppendBytes(int field, std::string_view bytes, std::string* message);
void AppendBytesHead(int field, uint64_t bytes, std::string* message);
void AppendInteger(int field, uint64_t value, std::string* message);

// Takes every occurrence of a field of bytes out of a message, in order, as views into it. `rest`
// is a message of every other field. INVALID_ARGUMENT where it is not well-formed protobuf on its
// top level, RESOURCE_EXHAUSTED where the field occurs more than `most` times.
absl::Status TakeFields(std::string_view message, int field, size_t most,
                        std::vector<std::string_view>* taken, std::string* rest);

}  // namespace telegrad
