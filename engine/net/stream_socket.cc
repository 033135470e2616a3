#include "engine/net/stream_socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

// Received by one call of the kernel: what it copied is then still in the second cache for who sums
// it up.
constexpr size_t kCallBytes = 256 << 10;

absl::Status Broken(std::string_view what) {
  return absl::UnavailableError(StrCat("the connection broke: ", what));
}

}  // namespace

bool StreamSocket::KeepsBytes() const {
  constexpr uint32_t kLoopback = 127;
  sockaddr_storage peer{};
  socklen_t size = sizeof(peer);
  if (getpeername(fd(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  if (peer.ss_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(peer).sin_addr.s_addr) >> 24 == kLoopback;
  }
  if (peer.ss_family == AF_INET6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&address) ||
           (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == kLoopback);
  }
  return peer.ss_family == AF_UNIX;
}

StreamSocket::StreamSocket(UniqueFd fd, std::chrono::milliseconds stall)
    : fd_(std::move(fd)), stall_(stall) {
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) & ~O_NONBLOCK);  // each call says it itself
}

absl::Status StreamSocket::Receive(std::span<std::byte> into) {
  while (!into.empty()) {
    TG_RETURN_IF_ERROR(CheckDeadline());
    TG_ASSIGN_OR_RETURN(const Moved moved,
                        TryReceive(into.first(std::min(into.size(), kCallBytes)), false));
    into = into.subspan(moved.bytes);
    if (moved.bytes == 0) TG_RETURN_IF_ERROR(Await(moved.wait_for));
  }
  return absl::OkStatus();
}

absl::Status StreamSocket::Send(std::span<const std::byte> bytes, bool more) {
  while (!bytes.empty()) {
    TG_RETURN_IF_ERROR(CheckDeadline());
    TG_ASSIGN_OR_RETURN(const Moved moved, TrySend(bytes, more));
    bytes = bytes.subspan(moved.bytes);
    if (moved.bytes == 0) TG_RETURN_IF_ERROR(Await(moved.wait_for));
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> StreamSocket::ReceiveSome(std::span<std::byte> into) {
  while (true) {
    TG_ASSIGN_OR_RETURN(const Moved moved, TryReceive(into, true));
    if (moved.bytes > 0) return moved.bytes;
    // TLS may have to send before it can receive. What it has of a record already does not help:
    // the rest is still to come.
    TG_RETURN_IF_ERROR(moved.wait_for == POLLIN ? AwaitMore() : Await(moved.wait_for));
  }
}

absl::StatusOr<size_t> StreamSocket::SendSome(std::span<const std::byte> bytes, bool more) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    TG_ASSIGN_OR_RETURN(const Moved moved, TrySend(bytes.subspan(sent), more));
    if (moved.bytes == 0) break;
    sent += moved.bytes;
  }
  return sent;
}

absl::Status StreamSocket::AwaitInput() { return HasReceived() ? absl::OkStatus() : AwaitMore(); }

absl::Status StreamSocket::AwaitMore() {
  pollfd polled = {fd_.get(), POLLIN, 0};
  while (poll(&polled, 1, -1) < 0) {
    if (errno != EINTR) return Broken(std::strerror(errno));
  }
  return absl::OkStatus();
}

absl::Status StreamSocket::Await(short events) {
  const auto begin = Clock::now();
  const auto until = std::min(deadline_.value_or(Clock::time_point::max()), begin + stall_);
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd polled = {fd_.get(), events, 0};
    const int n = poll(&polled, 1, static_cast<int>(std::clamp<int64_t>(left, 0, INT32_MAX)));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return Broken(std::strerror(errno));
    if (n == 0 && left <= 0) {
      if (until == begin + stall_) {
        return absl::DeadlineExceededError(
            StrCat("the peer moved no byte for ", stall_.count(), " ms"));
      }
      return CheckDeadline();
    }
  }
}

absl::Status StreamSocket::CheckDeadline() const {
  if (!deadline_ || Clock::now() < *deadline_) return absl::OkStatus();
  return absl::DeadlineExceededError("the peer was not done in the time that it had");
}

void StreamSocket::EndSending() { shutdown(fd_.get(), SHUT_WR); }

void StreamSocket::Shutdown() { shutdown(fd_.get(), SHUT_RDWR); }

absl::StatusOr<StreamSocket::Moved> StreamSocket::TryReceive(std::span<std::byte> into,
                                                             bool may_wait) {
  while (true) {
    const ssize_t n = recv(fd_.get(), into.data(), into.size(), may_wait ? 0 : MSG_DONTWAIT);
    if (n > 0) return Moved{static_cast<size_t>(n)};
    if (n == 0) return Broken("the peer closed it");
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Moved{0, POLLIN};
    if (errno != EINTR) return Broken(std::strerror(errno));
  }
}

absl::StatusOr<StreamSocket::Moved> StreamSocket::TrySend(std::span<const std::byte> bytes,
                                                          bool more) {
  // All in one call: in calls of 256 KiB, the receiver is woken and asked for room far more often,
  // and both ends take twice the processor time.
  while (true) {
    const ssize_t n = send(fd_.get(), bytes.data(), bytes.size(),
                           MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    if (n > 0) return Moved{static_cast<size_t>(n)};
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Moved{0, POLLOUT};
    if (errno != EINTR) return Broken(std::strerror(errno));
  }
}

}  // namespace telegrad
