// What goes over a worker's socket, each message one frame: its hello, then the daemon's setup,
// with the descriptors of the control segment and of the memory; then programs to load and to
// drop. Commands do not: they are on the ring (control.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace telegrad {

inline constexpr size_t kMaxWorkerHello = 64;
inline constexpr size_t kMaxWorkerSetup = 256;
inline constexpr size_t kMaxWorkerOrder = size_t{160} << 20;  // more than any compiled kernel has
inline constexpr size_t kMaxWorkerReply = 16 << 10;

struct DeviceWorkerSetup {
  int32_t threads = 1;
  int64_t launch_limit_ns = 0;  // 0: none
  int64_t memory_bytes = 0;     // of the second descriptor
};

// Load a program; or, without a binary, drop it.
struct DeviceWorkerOrder {
  uint64_t program = 0;
  std::string name;
  std::string binary;
};

std::string EncodeWorkerHello();
std::string EncodeWorkerSetup(const DeviceWorkerSetup& setup);
std::string EncodeWorkerOrder(uint64_t program, std::string_view name, std::string_view binary);
// The answer to a load.
std::string EncodeWorkerReply(uint64_t program, const absl::Status& status);

// DATA_LOSS for bytes that the others did not make; a hello of another protocol is
// FAILED_PRECONDITION. A reply's status is of the set that absl knows, with at most 4 KiB of text.
absl::Status CheckWorkerHello(std::string_view bytes);
absl::StatusOr<DeviceWorkerSetup> DecodeWorkerSetup(std::string_view bytes);
absl::StatusOr<DeviceWorkerOrder> DecodeWorkerOrder(std::string_view bytes);
absl::Status DecodeWorkerReply(std::string_view bytes, uint64_t program, absl::Status* said);

// A status from a number and a text of a process that is not trusted. UNKNOWN where the number is
// of none; control characters become spaces.
absl::Status WorkerStatus(int32_t code, std::string text);

}  // namespace telegrad
