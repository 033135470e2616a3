// Whole files, with errors that name the path.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace telegrad::cli {

// NOT_FOUND if the file cannot be opened; RESOURCE_EXHAUSTED over `limit` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit = int64_t{16} << 30);
// Writes beside the file and renames, so that a reader never sees half of it.
absl::Status WriteFile(const std::string& path, const std::string& content);

}  // namespace telegrad::cli
