// How both ends set up their gRPC channels and bulk sockets, and the versions they speak. Measured
// for bulk transfers on loopback: large frames and windows, and no probing that shrinks them.
#pragma once

#include <chrono>
#include <cstdint>

namespace telegrad {

inline constexpr uint32_t kProtocolMin = 1;
inline constexpr uint32_t kProtocolMax = 1;
inline constexpr uint32_t kGraphFormMin = 2;
inline constexpr uint32_t kGraphFormMax = 2;

inline constexpr int kChunkBytes = 1 << 20;        // of tensor data in one message
inline constexpr int kMaxMessageBytes = 80 << 20;  // a graph of kMaxGraphBytes and room around it
inline constexpr int kPayloadField = 15;           // `data` of ExecuteRequest and ExecuteResponse
// Operations, or answers, that travel in one message.
inline constexpr int kMostGathered = 256;
inline constexpr int kGatheredBytes = 16 << 10;  // of a message that takes no more of them

// The header of a call that names the tenant for whom its caller acts.
inline constexpr char kActsForHeader[] = "telegrad-acts-for";

// A stream of transfers takes no message much longer than a chunk.
inline constexpr int kMaxDataMessageBytes = 8 * kChunkBytes;
inline constexpr int kMaxDataHeadBytes = 64 << 10;  // of it, beside the data
// How long a bulk socket may move no byte in the middle of a message.
inline constexpr std::chrono::milliseconds kBulkStall{60'000};

struct ChannelArgument {
  const char* name;
  int value;  // for operations
  int bulk;   // for connections that carry transfers alone
};
inline constexpr ChannelArgument kChannelArguments[] = {
    {"grpc.http2.max_frame_size", 16777215, 16777215},
    {"grpc.http2.lookahead_bytes", 16 << 20, 16 << 20},
    {"grpc.http2.write_buffer_size", 4 << 20, 4 << 20},
    {"grpc.experimental.tcp_read_chunk_size", 1 << 20, 1 << 20},
    {"grpc.experimental.tcp_max_read_chunk_size", 8 << 20, 4 << 20},
    {"grpc.http2.bdp_probe", 0, 0},
    // A peer that disappears without closing its connection is noticed within a minute.
    {"grpc.keepalive_time_ms", 40'000, 40'000},
    {"grpc.keepalive_timeout_ms", 20'000, 20'000},
    {"grpc.http2.min_ping_interval_without_data_ms", 30'000, 30'000},
    // Of one connection; more wait at the client.
    {"grpc.max_concurrent_streams", 4096, 256},
    // A stream is never repeated; without this the library would keep what it sent.
    {"grpc.enable_retries", 0, 0},
    // A client whose connection broke tries again soon.
    {"grpc.initial_reconnect_backoff_ms", 100, 100},
    {"grpc.max_reconnect_backoff_ms", 2'000, 2'000},
    // None of gRPC's own compression: it would unpack a message of any length before it asks how
    // long that may be.
    {"grpc.compression_enabled_algorithms_bitset", 1, 1},
    {"grpc.max_receive_message_length", kMaxMessageBytes, kMaxDataMessageBytes},
    {"grpc.max_send_message_length", kMaxMessageBytes, kMaxDataMessageBytes},
};

}  // namespace telegrad
