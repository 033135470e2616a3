#include "engine/base/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/base/status.h"

namespace telegrad {

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

}  // namespace telegrad
