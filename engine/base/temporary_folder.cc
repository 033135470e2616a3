// The lock is flock's, which ends with the process that has the file open. Nobody sees the file
// under its name before it is locked. Who removes what others have left holds its lock meanwhile.
#include "engine/base/temporary_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/strings.h"

namespace telegrad {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKinds[] = {"driver", "opencl", "worker"};
constexpr std::string_view kRandom = "XXXXXX";  // see mkdtemp
constexpr std::string_view kLock = "/.telegrad-lock";
constexpr int kMostSwept = 4096;  // at once

std::string Base() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  return error ? "/tmp" : base.string();
}

void Remove(const std::string& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);  // follows no links
}

// Without one the folder is as good, but stays if the process is killed.
UniqueFd LockIn(const std::string& folder) {
  const std::string name = StrCat(folder, kLock), fresh = name + "-new";
  UniqueFd file(open(fresh.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid() || flock(file.get(), LOCK_EX | LOCK_NB) != 0 ||
      rename(fresh.c_str(), name.c_str()) != 0) {
    return UniqueFd();
  }
  return file;
}

bool IsNamedAsOurs(std::string_view name) {
  return std::ranges::any_of(kKinds, [&](std::string_view kind) {
    const std::string begin = StrCat("telegrad-", kind, "-");
    return name.starts_with(begin) && name.size() == begin.size() + kRandom.size();
  });
}

// The lock of a folder that nobody has any more; invalid where it is in use, or no folder of ours.
UniqueFd LockOfNobody(const std::string& path) {
  struct stat folder{}, file{};
  if (lstat(path.c_str(), &folder) != 0 || !S_ISDIR(folder.st_mode) || folder.st_uid != geteuid() ||
      (folder.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return UniqueFd();
  }
  UniqueFd lock(open(StrCat(path, kLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!lock.valid() || fstat(lock.get(), &file) != 0 || !S_ISREG(file.st_mode) ||
      file.st_uid != geteuid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return UniqueFd();
  }
  // Of one that somebody else has removed meanwhile there may be another under that name.
  if (fstat(lock.get(), &file) != 0 || file.st_nlink == 0) return UniqueFd();
  return lock;
}

}  // namespace

std::optional<TemporaryFolder> TemporaryFolder::Make(std::string_view kind) {
  std::string path = StrCat(Base(), "/telegrad-", kind, "-", kRandom);
  if (mkdtemp(path.data()) == nullptr) return std::nullopt;
  UniqueFd lock = LockIn(path);
  return TemporaryFolder(std::move(path), std::move(lock));
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::move(other.lock_)) {}

TemporaryFolder::~TemporaryFolder() {
  if (!path_.empty()) Remove(path_);
}

int64_t SweepTemporaryFolders() {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(Base(), error), end; !error && at != end; at.increment(error)) {
    if (IsNamedAsOurs(at->path().filename().string())) paths.push_back(at->path().string());
    if (paths.size() == kMostSwept) break;
  }
  int64_t removed = 0;
  for (const std::string& path : paths) {
    const UniqueFd lock = LockOfNobody(path);
    if (!lock.valid()) continue;
    Remove(path);
    ++removed;
  }
  return removed;
}

}  // namespace telegrad
