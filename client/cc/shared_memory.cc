// Shared memory is a sealed memfd whose descriptor goes to the server over its local socket,
// with a request in one packet that is answered by one packet.
#include "client/cc/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(int64_t bytes) {
  if (bytes <= 0) return InvalidArgument("shared memory of ", bytes, " bytes");
  const int fd = memfd_create("telegrad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return ResourceExhausted("memfd_create: ", std::strerror(errno));
  void* memory = MAP_FAILED;
  // Allocates all pages, so that they are charged to this process even where the server writes them
  // first.
  if (posix_fallocate(fd, 0, bytes) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    const absl::Status status =
        ResourceExhausted("shared memory of ", bytes, " bytes: ", std::strerror(errno));
    close(fd);
    return status;
  }
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(fd, {static_cast<std::byte*>(memory), static_cast<size_t>(bytes)}));
}

SharedMemory::~SharedMemory() {
  munmap(bytes_.data(), bytes_.size());
  close(fd_);
}

absl::StatusOr<std::unique_ptr<LocalDoor>> LocalDoor::Open(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return InvalidArgument(path, " is too long a path");
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return ResourceExhausted("socket: ", std::strerror(errno));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const absl::Status status = absl::UnavailableError(
        StrCat("the server's local socket ", path, ": ", std::strerror(errno)));
    close(fd);
    return status;
  }
  return std::unique_ptr<LocalDoor>(new LocalDoor(fd));
}

LocalDoor::~LocalDoor() { close(socket_); }

absl::StatusOr<std::string> LocalDoor::Ask(std::string_view request, int fd) {
  iovec vector{const_cast<char*>(request.data()), request.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  MutexLock lock(mutex_);
  char answer[4096];
  ssize_t size = sendmsg(socket_, &message, MSG_NOSIGNAL);
  if (size >= 0) {
    do {
      size = recv(socket_, answer, sizeof(answer), 0);
    } while (size < 0 && errno == EINTR);
  }
  if (size <= 0) return absl::UnavailableError("the server's local socket was closed");
  std::string_view text(answer, static_cast<size_t>(size));
  if (text.starts_with("ok")) return std::string(text.substr(std::min<size_t>(text.size(), 3)));
  return FailedPrecondition("the server's local socket says: ", text);
}

}  // namespace telegrad
