#include "engine/base/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/base/status.h"

namespace telegrad {
namespace {

template <typename... Parts>
absl::Status CannotWrite(const std::string& path, const Parts&... why) {
  return FailedPrecondition("cannot write ", path, ": ", why...);
}

// Whether a file can be made at a path where there is none.
absl::Status CheckFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  const int error = errno;
  if (error == ENOENT) {
    return CannotWrite(path, "there is no folder ", folder, "; make it, or name another file");
  }
  return CannotWrite(path, "folder ", folder, ": ", std::strerror(error),
                     "; name a file in another folder");
}

absl::Status CheckOutput(const std::string& path, bool replaced) {
  struct stat file;
  if (stat(path.c_str(), &file) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return CheckFolder(path);
    return CannotWrite(path, std::strerror(error), "; name another file");
  }
  if (S_ISDIR(file.st_mode)) return CannotWrite(path, "it is a folder; name a file in it");
  if (replaced && !S_ISREG(file.st_mode)) {
    return CannotWrite(path, "it is not a regular file; name another file");
  }
  if (replaced) return CheckFolder(path);
  if (access(path.c_str(), W_OK) == 0) return absl::OkStatus();
  const int error = errno;
  return CannotWrite(path, std::strerror(error), "; name another file, or change its permissions");
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr) return NotFound("cannot open ", path, ": ", std::strerror(errno));
  std::string out;
  char chunk[1 << 16];
  while (const size_t n = std::fread(chunk, 1, sizeof(chunk), file.get())) {
    out.append(chunk, n);
    if (static_cast<int64_t>(out.size()) > limit) {
      return ResourceExhausted(path, " is longer than ", limit, " bytes");
    }
  }
  if (std::ferror(file.get())) return absl::DataLossError(StrCat("cannot read ", path));
  return out;
}

absl::Status WriteFile(const std::string& path, std::string_view bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr)
    return FailedPrecondition("cannot create ", path, ": ", std::strerror(errno));
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) return absl::DataLossError(StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& path) {
  return CheckOutput(path, /*replaced=*/false);
}

absl::Status CheckReplaceable(const std::string& path) {
  return CheckOutput(path, /*replaced=*/true);
}

}  // namespace telegrad
