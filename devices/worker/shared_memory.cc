// Makes and seals memfds, maps them, and passes descriptors over a socket (SCM_RIGHTS).
#include "devices/worker/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMostDescriptors = 8;

}  // namespace

absl::StatusOr<UniqueFd> CreateSharedFile(const char* name, int64_t size) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), size) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ResourceExhausted("the system refused ", size,
                             " bytes of shared memory: ", std::strerror(errno));
  }
  return fd;
}

absl::StatusOr<std::unique_ptr<SharedMapping>> SharedMapping::Map(int fd, int64_t size) {
  struct stat stat;
  if (fstat(fd, &stat) != 0 || stat.st_size != size) {
    return InvalidArgument("shared memory of another size than ", size, " bytes");
  }
  void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (at == MAP_FAILED) {
    return ResourceExhausted("the system maps no ", size,
                             " bytes of shared memory: ", std::strerror(errno));
  }
  return std::unique_ptr<SharedMapping>(new SharedMapping(static_cast<char*>(at), size));
}

SharedMapping::~SharedMapping() { munmap(base_, size_); }

absl::Status SendDescriptors(int socket, std::span<const int> descriptors) {
  alignas(cmsghdr) char space[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  if (descriptors.size() > kMostDescriptors) return Internal("too many descriptors");
  char byte = 0;
  iovec data{&byte, 1};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  if (sendmsg(socket, &message, MSG_NOSIGNAL) == 1) return absl::OkStatus();
  return absl::UnavailableError(StrCat("sending descriptors: ", std::strerror(errno)));
}

absl::StatusOr<std::vector<UniqueFd>> ReceiveDescriptors(int socket, size_t count) {
  alignas(cmsghdr) char space[CMSG_SPACE(kMostDescriptors * sizeof(int))] = {};
  char byte;
  iovec data{&byte, 1};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) {
    return absl::UnavailableError("the other side has closed its end");
  }
  std::vector<UniqueFd> out;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    const size_t bytes = header->cmsg_len - CMSG_LEN(0);
    for (size_t at = 0; at + sizeof(int) <= bytes; at += sizeof(int)) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
      out.emplace_back(fd);
    }
  }
  if (out.size() != count || (message.msg_flags & MSG_CTRUNC) != 0) {
    return absl::DataLossError(StrCat(out.size(), " descriptors, expected ", count));
  }
  return out;
}

}  // namespace telegrad
