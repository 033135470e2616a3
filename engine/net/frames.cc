#include "engine/net/frames.h"

#include <algorithm>
#include <array>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kSizes = 8;
// Summed up at a time: what the kernel has just copied is then still in the second cache.
constexpr size_t kPiece = 256 << 10;

uint32_t Load(const std::byte* p) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | std::to_integer<uint32_t>(p[i]);
  return value;
}

void Append(std::string* out, size_t value) {
  for (int i = 0; i < 4; ++i) out->push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

}  // namespace

absl::Status SendFrame(StreamSocket& socket, std::string_view head,
                       std::span<const std::byte> payload) {
  std::string first;
  first.reserve(kSizes + head.size());
  Append(&first, head.size());
  Append(&first, payload.size());
  first += head;
  TG_RETURN_IF_ERROR(socket.Send(std::as_bytes(std::span(first)), !payload.empty()));
  return socket.Send(payload);
}

absl::StatusOr<Frame> ReceiveFrame(StreamSocket& socket, uint32_t max_head, uint32_t max_payload) {
  std::array<std::byte, kSizes> sizes;
  TG_RETURN_IF_ERROR(socket.Receive(sizes));
  const uint32_t head = Load(&sizes[0]), payload = Load(&sizes[4]);
  if (head > max_head || payload > max_payload) {
    return InvalidArgument("a frame of ", head, " and ", payload, " bytes; there may be ", max_head,
                           " and ", max_payload);
  }
  Frame frame{.head = std::string(head, '\0'), .payload_bytes = payload};
  TG_RETURN_IF_ERROR(socket.Receive(std::as_writable_bytes(std::span(frame.head))));
  return frame;
}

absl::StatusOr<uint32_t> ReceiveChecked(StreamSocket& socket, std::span<std::byte> into,
                                        Checksum kind) {
  uint32_t sum = 0;
  while (!into.empty()) {
    const auto piece = into.first(std::min(into.size(), kPiece));
    TG_RETURN_IF_ERROR(socket.Receive(piece));
    sum = ChecksumOf(kind, piece.data(), piece.size(), sum);
    into = into.subspan(piece.size());
  }
  return sum;
}

absl::Status SkipPayload(StreamSocket& socket, uint32_t bytes) {
  std::array<std::byte, 16 << 10> scratch;
  while (bytes > 0) {
    const auto n = std::min<size_t>(bytes, scratch.size());
    TG_RETURN_IF_ERROR(socket.Receive(std::span(scratch).first(n)));
    bytes -= static_cast<uint32_t>(n);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
