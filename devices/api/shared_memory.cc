// Makes and seals memfds, maps them, finds them below /proc, and passes descriptors over a socket
// (SCM_RIGHTS).
#include "devices/api/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "engine/base/random_bytes.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMostDescriptors = 8;

// A handle is "telegrad-memory:PROCESS:DESCRIPTOR:NUMBER".
constexpr std::string_view kHandlePrefix = "telegrad-memory";
constexpr size_t kNumberBytes = 16, kLongestHandle = 128;

std::string ExportedName(std::string_view number) { return StrCat("telegrad-exported-", number); }

bool IsDecimal(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Prefix, process, descriptor and number; none where it is no handle.
std::vector<std::string> WordsOf(std::string_view handle) {
  if (handle.size() > kLongestHandle) return {};
  std::vector<std::string> words =
      absl::StrSplit(absl::string_view(handle.data(), handle.size()), ':');
  const bool is_one = words.size() == 4 && words[0] == kHandlePrefix && IsDecimal(words[1]) &&
                      IsDecimal(words[2]) && words[3].size() == 2 * kNumberBytes;
  return is_one ? words : std::vector<std::string>();
}

// Whether `path`, below /proc, is a memfd of that name.
bool IsNamed(const std::string& path, std::string_view name) {
  std::array<char, 256> target{};
  return readlink(path.c_str(), target.data(), target.size() - 1) > 0 &&
         target.data() == StrCat("/memfd:", name, " (deleted)");
}

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

absl::StatusOr<ExportedFile> CreateExportedFile(int64_t size) {
  const std::string number = absl::BytesToHexString(RandomBytes(kNumberBytes));
  TG_ASSIGN_OR_RETURN(UniqueFd file, CreateSharedFile(ExportedName(number).c_str(), size));
  std::string handle = StrCat(kHandlePrefix, ":", getpid(), ":", file.get(), ":", number);
  return ExportedFile{std::move(file), std::move(handle)};
}

absl::StatusOr<UniqueFd> OpenExportedFile(std::string_view handle) {
  const auto none = [] {
    return InvalidArgument(
        "the memory handle cannot be opened: no process has memory of that name");
  };
  const std::vector<std::string> words = WordsOf(handle);
  if (words.empty()) return none();
  const std::string path = StrCat("/proc/", words[1], "/fd/", words[2]);
  if (!IsNamed(path, ExportedName(words[3]))) return none();
  UniqueFd file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file.valid()) return none();
  // Behind the path may be another file by now.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  const bool is_it = IsNamed(StrCat("/proc/self/fd/", file.get()), ExportedName(words[3])) &&
                     seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
  if (!is_it) return none();
  return file;
}

pid_t ExportingProcess(std::string_view handle) {
  const std::vector<std::string> words = WordsOf(handle);
  return words.empty() ? 0 : static_cast<pid_t>(std::stol(words[1]));
}

int64_t SizeOf(const UniqueFd& file) {
  struct stat about{};
  return fstat(file.get(), &about) == 0 ? int64_t{about.st_size} : -1;
}

absl::StatusOr<std::unique_ptr<SharedMapping>> SharedMapping::Map(int fd, int64_t size) {
  struct stat about{};
  if (fstat(fd, &about) != 0 || about.st_size != size) {
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
