// Memory that this process shares with a server on the same machine: one copy moves bytes between
// it and a buffer of a session, without a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

namespace telegrad {

class SharedMemory {
 public:
  // RESOURCE_EXHAUSTED where the system has no more.
  static absl::StatusOr<std::shared_ptr<SharedMemory>> Create(int64_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  int fd() const { return fd_; }

 private:
  SharedMemory(int fd, std::span<std::byte> bytes) : fd_(fd), bytes_(bytes) {}

  const int fd_;
  const std::span<std::byte> bytes_;
};

// A connection to the server's local socket, over which memory is passed to it. Thread-safe.
class LocalDoor {
 public:
  // UNAVAILABLE if no process listens at `path`.
  static absl::StatusOr<std::unique_ptr<LocalDoor>> Open(const std::string& path);
  ~LocalDoor();
  LocalDoor(const LocalDoor&) = delete;
  LocalDoor& operator=(const LocalDoor&) = delete;

  // Sends a request with a descriptor and waits for the answer, which it returns without its "ok".
  absl::StatusOr<std::string> Ask(std::string_view request, int fd);

 private:
  explicit LocalDoor(int socket) : socket_(socket) {}

  const int socket_;
  Mutex mutex_;  // one request at a time
};

}  // namespace telegrad
