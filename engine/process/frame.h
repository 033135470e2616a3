// Messages over a stream socket between a process and one it does not trust to stay sane: a frame
// is the word kFrameMagic, the payload's length (u32), the payload's SHA-256, the payload. The
// reader bounds the length before it allocates.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/process/processor_use.h"

namespace telegrad {

using FrameDeadline = std::chrono::steady_clock::time_point;
inline constexpr FrameDeadline kNoDeadline = FrameDeadline::max();

inline constexpr uint32_t kFrameMagic = 0x46524754;  // "TGRF"
inline constexpr size_t kFrameHeaderBytes = 40;

// Both work on blocking and nonblocking sockets. DEADLINE_EXCEEDED: the other side took too long;
// UNAVAILABLE: it has closed its end; DATA_LOSS: what it sent is no frame, or one over `max_bytes`.
// After an error the stream is at no known place.
// Until something can be read, or the other side has closed its end. DEADLINE_EXCEEDED.
absl::Status AwaitFrame(int socket, FrameDeadline deadline);
// The same, with so much patience with the process at the other end, see PatienceLeft.
absl::Status AwaitFrameOf(pid_t process, int socket, std::chrono::nanoseconds patience,
                          const PatienceSource& source = {});
absl::Status WriteFrame(int socket, std::string_view payload, FrameDeadline deadline = kNoDeadline);
absl::StatusOr<std::string> ReadFrame(int socket, size_t max_bytes,
                                      FrameDeadline deadline = kNoDeadline);

}  // namespace telegrad
