#include "engine/process/frame.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/byte_codec.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kShort = 4096;  // bytes that are copied rather than sent by themselves

absl::Status Closed() { return absl::UnavailableError("the other side has closed its end"); }

// Until the socket is ready for `events`.
absl::Status WaitFor(int socket, short events, FrameDeadline deadline) {
  while (true) {
    int timeout = -1;
    if (deadline != kNoDeadline) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0) return absl::DeadlineExceededError("the other side took too long");
      timeout = static_cast<int>(std::min<int64_t>(left.count(), 1 << 30));
    }
    pollfd one{socket, events, 0};
    const int ready = poll(&one, 1, timeout);
    if (ready > 0) return absl::OkStatus();  // an error shows when it is used
    if (ready < 0 && errno != EINTR) return Internal("poll: ", std::strerror(errno));
  }
}

// `Move` is send or recv of the bytes at an offset.
template <typename Move>
absl::Status MoveAll(int socket, size_t size, short events, FrameDeadline deadline, Move move) {
  for (size_t done = 0; done < size;) {
    const ssize_t moved = move(done);
    if (moved > 0) {
      done += static_cast<size_t>(moved);
    } else if (moved == 0 || errno == EPIPE || errno == ECONNRESET) {
      return Closed();
    } else if (errno == EAGAIN) {  // what is there needs no waiting, which is a system call more
      TG_RETURN_IF_ERROR(WaitFor(socket, events, deadline));
    } else if (errno != EINTR) {
      return Internal("socket: ", std::strerror(errno));
    }
  }
  return absl::OkStatus();
}

absl::Status SendAll(int socket, std::string_view bytes, FrameDeadline deadline) {
  return MoveAll(socket, bytes.size(), POLLOUT, deadline, [&](size_t at) {
    return send(socket, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
  });
}

absl::Status ReceiveAll(int socket, char* to, size_t size, FrameDeadline deadline) {
  return MoveAll(socket, size, POLLIN, deadline,
                 [&](size_t at) { return recv(socket, to + at, size - at, MSG_DONTWAIT); });
}

}  // namespace

absl::Status AwaitFrame(int socket, FrameDeadline deadline) {
  return WaitFor(socket, POLLIN, deadline);
}

absl::Status AwaitFrameOf(pid_t process, int socket, std::chrono::nanoseconds patience,
                          const PatienceSource& source) {
  return WaitPatiently(
      process, patience,
      [&](std::chrono::nanoseconds time) {
        return AwaitFrame(socket, std::chrono::steady_clock::now() + time);
      },
      source);
}

absl::Status WriteFrame(int socket, std::string_view payload, FrameDeadline deadline) {
  if (payload.size() > UINT32_MAX) {
    return ResourceExhausted("a frame of ", payload.size(), " bytes");
  }
  ByteWriter header;
  header.Word(kFrameMagic);
  header.Word(static_cast<uint32_t>(payload.size()));
  std::string head = header.Take();
  head.append(Sha256(payload).view());
  if (payload.size() <= kShort) {  // at once
    head.append(payload);
    return SendAll(socket, head, deadline);
  }
  TG_RETURN_IF_ERROR(SendAll(socket, head, deadline));
  return SendAll(socket, payload, deadline);
}

absl::StatusOr<std::string> ReadFrame(int socket, size_t max_bytes, FrameDeadline deadline) {
  std::array<char, kFrameHeaderBytes> header{};
  TG_RETURN_IF_ERROR(ReceiveAll(socket, header.data(), header.size(), deadline));
  const std::string_view bytes(header.data(), header.size());
  ByteReader reader(bytes);
  if (reader.Word<uint32_t>() != kFrameMagic) return absl::DataLossError("no frame begins here");
  const auto size = reader.Word<uint32_t>();
  if (size > max_bytes) {
    return absl::DataLossError(StrCat("a frame of ", size, " bytes, over ", max_bytes));
  }
  std::string payload(size, '\0');
  TG_RETURN_IF_ERROR(ReceiveAll(socket, payload.data(), payload.size(), deadline));
  if (Sha256(payload).view() != bytes.substr(8)) {
    return absl::DataLossError("a frame with a wrong checksum");
  }
  return payload;
}

}  // namespace telegrad
