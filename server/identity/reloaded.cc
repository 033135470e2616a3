// A stamp of a file or folder, made of sizes, times and inodes, tells whether it has changed.
#include "server/identity/reloaded.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

}  // namespace

bool IsGone(int error) { return error == ENOENT || error == ENOTDIR; }

std::string FileStamp(const std::string& path) {
  struct stat s;
  if (stat(path.c_str(), &s) != 0) return IsGone(errno) ? "gone" : "";
  return StrCat(s.st_dev, " ", s.st_ino, " ", s.st_size, " ", s.st_mtim.tv_sec, ".",
                s.st_mtim.tv_nsec, " ", s.st_ctim.tv_sec, ".", s.st_ctim.tv_nsec);
}

std::string FolderStamp(const std::string& path) {
  DIR* const folder = opendir(path.c_str());
  if (folder == nullptr) return IsGone(errno) ? "gone" : "";
  std::set<std::string> names;
  while (const dirent* entry = readdir(folder)) names.insert(entry->d_name);
  closedir(folder);
  std::string all = "folder";
  for (const std::string& name : names) {
    if (!name.starts_with('.')) StrAppend(&all, "\n", name, " ", FileStamp(path + "/" + name));
  }
  return all;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  // Not blocking: a pipe in place of the file must not block authentication.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && IsGone(errno)) return NotFound(std::strerror(errno));
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  std::string content;
  char buffer[4096];
  ssize_t n;
  while ((n = read(fd, buffer, sizeof(buffer))) > 0 && content.size() <= kMaxFileBytes) {
    content.append(buffer, static_cast<size_t>(n));
  }
  const int error = errno;
  close(fd);
  if (n < 0) return absl::UnavailableError(std::strerror(error));
  if (content.size() > kMaxFileBytes) {
    return InvalidArgument("larger than ", kMaxFileBytes, " bytes");
  }
  return content;
}

}  // namespace telegrad
