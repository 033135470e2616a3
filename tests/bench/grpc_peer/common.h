// What both ends of the bare gRPC peer share. The bulk methods carry raw byte buffers: a 16-byte
// header of two native 64-bit words, then the payload, never a protobuf message.
#pragma once

#include <grpc/grpc.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace telegrad::bench {

constexpr uint64_t kBulkBytes = uint64_t{256} << 20;
constexpr char kUpMethod[] = "/raw/Up";  // chunks {offset, length}, data; answer: bytes received
constexpr char kDownMethod[] =
    "/raw/Down";  // request {total, chunk}; answer: chunks {offset, length}, data
constexpr char kTalkMethod[] = "/raw/Talk";  // each message comes back as it is, in order

struct Header {
  uint64_t words[2];
};

// With TUNE in the environment, both ends use large frames, reads and look-ahead, which is the
// fastest that this gRPC does in bulk; without it, gRPC's defaults, which suit latency. `set(name,
// value)` sets one.
template <typename Set>
void Tune(Set set) {
  if (!std::getenv("TUNE")) return;
  set(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 16777215);
  set(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 20);
  set(GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, 4 << 20);
  set("grpc.experimental.tcp_read_chunk_size", 1 << 20);
  set("grpc.experimental.tcp_max_read_chunk_size", 8 << 20);
  set("grpc.http2.bdp_probe", 0);
}

// One message of a bulk transfer; `data` must outlive it.
inline grpc::ByteBuffer MakeChunk(uint64_t first, uint64_t second, const char* data,
                                  uint64_t length) {
  const Header header{{first, second}};
  grpc::Slice slices[2] = {grpc::Slice(&header, sizeof(header)),
                           grpc::Slice(data, length, grpc::Slice::STATIC_SLICE)};
  return grpc::ByteBuffer(slices, length == 0 ? 1 : 2);
}

// Splits a message into its header and payload, which it hands to `take(offset, data, length)`
// piece by piece, where offset counts from the payload's start. False if the message is shorter
// than a header.
template <typename Take>
bool Unpack(const grpc::ByteBuffer& message, Header* header, Take take) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return false;
  size_t in_header = 0;
  uint64_t offset = 0;
  for (const grpc::Slice& slice : slices) {
    const char* data = reinterpret_cast<const char*>(slice.begin());
    size_t length = slice.size();
    if (in_header < sizeof(*header)) {
      const size_t n = std::min(length, sizeof(*header) - in_header);
      std::memcpy(reinterpret_cast<char*>(header) + in_header, data, n);
      in_header += n;
      data += n;
      length -= n;
    }
    if (length == 0) continue;
    take(offset, data, length);
    offset += length;
  }
  return in_header == sizeof(*header);
}

}  // namespace telegrad::bench
