// Everything goes through the descriptor of the folder that was checked, never through its path
// again, so that another user cannot replace the folder later.
#include "engine/execution/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr std::string_view kTemporary = ".new.";  // a name that no reader asks for
constexpr int64_t kAbandonedSeconds = 600;        // what is older is not being written any more
constexpr mode_t kOthersMayWrite = S_IWGRP | S_IWOTH;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

absl::Status Failed(const auto&... what) {
  return absl::UnavailableError(StrCat(what..., ": ", std::strerror(errno)));
}

std::string Octal(mode_t mode) {
  std::string text;
  for (int shift = 9; shift >= 0; shift -= 3) text += static_cast<char>('0' + (mode >> shift & 7));
  return text;
}

// Checks that only this user can change it.
absl::Status CheckOwner(const std::string& what, const struct stat& info) {
  if (info.st_uid != geteuid()) {
    return FailedPrecondition(what, " belongs to user ", info.st_uid, ", not to ", geteuid(),
                              ", the user of this process; it is not used");
  }
  if ((info.st_mode & kOthersMayWrite) != 0) {
    return FailedPrecondition(
        what, " can be written by others (mode ", Octal(info.st_mode),
        "); it is not used; if its content can be trusted, run chmod go-w on it");
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno != EINTR) return Failed("write");
    if (written > 0) content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateDirectory>> PrivateDirectory::Open(const std::string& path,
                                                                         const Limits& limits) {
  if (mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return FailedPrecondition("cannot make the folder ", path, ": ", std::strerror(errno));
  }
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (folder.get() < 0 || fstat(folder.get(), &info) != 0) {
    return FailedPrecondition("cannot use ", path, " as a folder: ", std::strerror(errno));
  }
  TG_RETURN_IF_ERROR(CheckOwner(path, info));
  std::unique_ptr<PrivateDirectory> out(new PrivateDirectory(path, folder.Release(), limits));
  out->Tidy();
  return out;
}

PrivateDirectory::~PrivateDirectory() { close(folder_); }

absl::StatusOr<std::string> PrivateDirectory::Read(const std::string& name, int64_t max_bytes) {
  const Descriptor file(
      openat(folder_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info;
  if (file.get() < 0 && errno == ENOENT) return NotFound("no file ", name);
  if (file.get() < 0 && errno != ELOOP) return Failed("open ", name);
  if (file.get() < 0 || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return FailedPrecondition(name, " is not a plain file");
  }
  TG_RETURN_IF_ERROR(CheckOwner(name, info));
  if (info.st_size > max_bytes) {
    return FailedPrecondition(name, " has ", info.st_size, " bytes, over ", max_bytes);
  }
  std::string content(static_cast<size_t>(info.st_size), '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t got = read(file.get(), content.data() + size, content.size() - size);
    if (got < 0 && errno != EINTR) return Failed("read ", name);
    if (got == 0) break;
    if (got > 0) size += static_cast<size_t>(got);
  }
  content.resize(size);
  // The time of the last use, whatever the file system's own policy on it is.
  const timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  futimens(file.get(), times);
  return content;
}

absl::Status PrivateDirectory::Write(const std::string& name, std::string_view content) {
  const auto size = static_cast<int64_t>(content.size());
  if (size > limits_.bytes) {
    return ResourceExhausted(name, " of ", size, " bytes is over the limit of ", limits_.bytes);
  }
  const std::string temporary = StrCat(kTemporary, getpid(), ".", next_.fetch_add(1));
  const Descriptor file(openat(folder_, temporary.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                               S_IRUSR | S_IWUSR));
  if (file.get() < 0) {
    const absl::Status status = Failed("create a file in ", path_);
    // Left by a process that had this number before.
    if (errno == EEXIST) unlinkat(folder_, temporary.c_str(), 0);
    return status;
  }
  absl::Status status = WriteAll(file.get(), content);
  if (status.ok() && renameat(folder_, temporary.c_str(), folder_, name.c_str()) != 0) {
    status = Failed("rename");
  }
  if (!status.ok()) {
    unlinkat(folder_, temporary.c_str(), 0);
    return absl::Status(status.code(),
                        StrCat("cannot write ", path_, "/", name, ": ", ToStd(status.message())));
  }
  const int64_t bytes = bytes_.fetch_add(size) + size, files = files_.fetch_add(1) + 1;
  if (bytes > limits_.bytes || files > limits_.files) Tidy();
  return absl::OkStatus();
}

void PrivateDirectory::Remove(const std::string& name) {
  if (unlinkat(folder_, name.c_str(), 0) != 0 && errno == EISDIR) {
    unlinkat(folder_, name.c_str(), AT_REMOVEDIR);
  }
}

void PrivateDirectory::Tidy() {
  const MutexLock lock(tidying_);
  struct File {
    timespec used;
    int64_t bytes;
    std::string name;
  };
  std::vector<File> found;
  DIR* folder = fdopendir(openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder == nullptr) return;
  int64_t bytes = 0;
  const time_t now = time(nullptr);
  while (const dirent* entry = readdir(folder)) {
    const std::string name(entry->d_name);
    struct stat info;
    if (fstatat(folder_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode)) continue;
    if (name.starts_with(kTemporary) && now - info.st_mtim.tv_sec > kAbandonedSeconds) {
      unlinkat(folder_, name.c_str(), 0);
      continue;
    }
    const bool by_read = std::tie(info.st_atim.tv_sec, info.st_atim.tv_nsec) >
                         std::tie(info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
    bytes += info.st_size;
    found.push_back({by_read ? info.st_atim : info.st_mtim, info.st_size, name});
  }
  closedir(folder);
  auto files = static_cast<int64_t>(found.size());
  if (bytes > limits_.bytes || files > limits_.files) {
    std::ranges::sort(found, [](const File& a, const File& b) {
      return std::tie(a.used.tv_sec, a.used.tv_nsec, a.name) <
             std::tie(b.used.tv_sec, b.used.tv_nsec, b.name);
    });
    for (const File& file : found) {
      if (bytes <= limits_.bytes - limits_.bytes / 8 &&
          files <= limits_.files - limits_.files / 8) {
        break;
      }
      if (file.name.starts_with(kTemporary)) continue;  // a process is writing it
      if (unlinkat(folder_, file.name.c_str(), 0) == 0) evicted_.fetch_add(1);
      bytes -= file.bytes;
      --files;
    }
  }
  bytes_.store(bytes);
  files_.store(files);
}

}  // namespace telegrad
