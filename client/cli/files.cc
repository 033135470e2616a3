#include "client/cli/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/base/status.h"

namespace telegrad::cli {

absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return NotFound("cannot read ", path, ": ", error.message());
  if (size > static_cast<uint64_t>(limit)) {
    return ResourceExhausted(path, " has ", size, " bytes, over the limit of ", limit);
  }
  std::ifstream in(path, std::ios::binary);
  std::string content(size, '\0');
  if (!in.read(content.data(), static_cast<std::streamsize>(size))) {
    return NotFound("cannot read ", path, ": ", std::strerror(errno));
  }
  return content;
}

absl::Status WriteFile(const std::string& path, const std::string& content) {
  const std::string part = path + ".part";
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    if (!out) return FailedPrecondition("cannot write ", part, ": ", std::strerror(errno));
  }
  std::error_code error;
  std::filesystem::rename(part, path, error);
  if (error) return FailedPrecondition("cannot rename ", part, ": ", error.message());
  return absl::OkStatus();
}

}  // namespace telegrad::cli
