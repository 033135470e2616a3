// Without symbolic links and "..", a path of plain names cannot leave the directory in which it
// starts. openat2 refuses links in the kernel. The walk opens one name at a time relative to the
// directory before, with O_NOFOLLOW, so that no name is looked up twice and a swap in between
// changes nothing.
#include "devices/disk/open_beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kLongestPath = 4095;
constexpr mode_t kNewFileMode = 0600;

// As it may stand in a message.
std::string Printable(std::string_view path) {
  return absl::CHexEscape(ToAbsl(path.substr(0, 256)));
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

absl::Status FileError(int error, std::string_view doing, std::string_view what) {
  const std::string message = StrCat(doing, " \"", Printable(what), "\"");
  absl::Status status = absl::ErrnoToStatus(error, message);
  switch (error) {
    case EIO:
      return absl::DataLossError(status.message());
    case EFBIG:
    case EDQUOT:
      return absl::ResourceExhaustedError(status.message());
    case ELOOP:
    case EXDEV:
      return absl::PermissionDeniedError(
          StrCat(message, ": the path leads through a symbolic link, or out of its directory"));
    default:
      return status;
  }
}

absl::Status CheckRelativePath(std::string_view path) {
  const auto bad = [&](std::string_view why) {
    return InvalidArgument("path \"", Printable(path), "\": ", why);
  };
  if (path.empty()) return bad("it is empty");
  if (path.size() > kLongestPath) return bad(StrCat("it is longer than ", kLongestPath, " bytes"));
  if (path.find('\0') != path.npos) return bad("it has a zero byte");
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view name = path.substr(begin, end - begin);
    if (name.empty()) return bad("names are separated by one slash, with none before or after");
    if (name == "." || name == "..") return bad("\".\" and \"..\" are not names");
    begin = end + 1;
  }
  return absl::OkStatus();
}

int ResolveByKernel(int root, const std::string& path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? kNewFileMode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how)));
}

int ResolveByWalk(int root, const std::string& path, int flags) {
  FileDescriptor held;
  int directory = root;
  size_t begin = 0;
  for (size_t slash; (slash = path.find('/', begin)) != path.npos; begin = slash + 1) {
    const std::string name = path.substr(begin, slash - begin);
    FileDescriptor next(
        openat(directory, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (next.get() < 0) {
      const int error = errno;
      struct stat link{};
      const bool is_link = error == ENOTDIR &&
                           fstatat(directory, name.c_str(), &link, AT_SYMLINK_NOFOLLOW) == 0 &&
                           S_ISLNK(link.st_mode);
      errno = is_link ? ELOOP : error;
      return -1;
    }
    held = std::move(next);
    directory = held.get();
  }
  const int fd = openat(directory, path.c_str() + begin, flags | O_NOFOLLOW, kNewFileMode);
  const int error = errno;  // closing the directory must not change it
  held = FileDescriptor();
  errno = error;
  return fd;
}

absl::StatusOr<FileDescriptor> OpenBeneath(int root, const std::string& path, int flags) {
  // Neither a pipe without a writer nor a terminal may hold or take over the daemon.
  flags |= O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  FileDescriptor file(ResolveByKernel(root, path, flags));
  if (file.get() < 0 && (errno == ENOSYS || errno == EPERM)) {
    file = FileDescriptor(ResolveByWalk(root, path, flags));
  }
  if (file.get() < 0) return FileError(errno, "opening", path);
  struct stat what{};
  if (fstat(file.get(), &what) != 0) return FileError(errno, "looking at", path);
  if (!S_ISREG(what.st_mode)) {
    return InvalidArgument("path \"", Printable(path), "\" is not a regular file");
  }
  return file;
}

}  // namespace telegrad
