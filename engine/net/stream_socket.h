// One end of a connected stream socket: whole messages are sent and received by threads that wait
// for them. Nobody waits for ever: a peer that moves no byte for a while is given up, and another
// thread can end it all.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/unique_fd.h"

namespace telegrad {

// One thread may receive while another one sends. What was sent of a message that failed is not
// known: the connection is of no further use.
class StreamSocket {
 public:
  // `fd` is connected. No call waits for longer than `stall` without a byte having moved.
  StreamSocket(UniqueFd fd, std::chrono::milliseconds stall);
  virtual ~StreamSocket() = default;
  StreamSocket(const StreamSocket&) = delete;
  StreamSocket& operator=(const StreamSocket&) = delete;

  // Before anything else.
  virtual absl::Status Handshake() { return absl::OkStatus(); }
  // UNAVAILABLE if the connection is over or becomes so, DEADLINE_EXCEEDED after a stall or at the
  // deadline.
  absl::Status Receive(std::span<std::byte> into);
  // `more`: what follows comes at once, so that packets may wait for it.
  absl::Status Send(std::span<const std::byte> bytes, bool more = false);
  // At least one byte, and as many of the others as have arrived. Waits as long as it takes for the
  // first.
  absl::StatusOr<size_t> ReceiveSome(std::span<std::byte> into);
  // Of the bytes, as many as can be sent without waiting.
  absl::StatusOr<size_t> SendSome(std::span<const std::byte> bytes, bool more = false);
  // Waits as long as it takes until there is something to be received, the end too.
  absl::Status AwaitInput();
  // Of every Send and Receive from now on, until there is none; it ends them though bytes move.
  void SetDeadline(std::optional<std::chrono::steady_clock::time_point> deadline) {
    deadline_ = deadline;
  }
  // Whether bytes arrive as they were sent, without a checksum of the caller's: within this machine
  // and under TLS.
  virtual bool KeepsBytes() const;
  // The peer is told that no more follows; it may still send.
  void EndSending();
  // From any thread: ends the connection for both sides.
  void Shutdown();

 protected:
  using Clock = std::chrono::steady_clock;
  // What moved at once: more than 0 bytes, or none and for what to wait.
  struct Moved {
    size_t bytes = 0;
    short wait_for = 0;  // POLLIN or POLLOUT
  };
  // `may_wait`: it may also wait, as long as it takes for the first byte.
  virtual absl::StatusOr<Moved> TryReceive(std::span<std::byte> into, bool may_wait);
  virtual absl::StatusOr<Moved> TrySend(std::span<const std::byte> bytes, bool more);
  // Bytes that the kernel has no more, be they less than what can be received at once.
  virtual bool HasReceived() const { return false; }
  absl::Status Await(short events);
  int fd() const { return fd_.get(); }

 private:
  absl::Status CheckDeadline() const;
  absl::Status AwaitMore();  // as long as it takes, from the kernel

  const UniqueFd fd_;
  const std::chrono::milliseconds stall_;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace telegrad
