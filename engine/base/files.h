// Whole files in and out, for the readers and writers of tensor files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad {

// RESOURCE_EXHAUSTED if the file is longer than `limit`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit = int64_t{1} << 40);
absl::Status WriteFile(const std::string& path, std::string_view bytes);

}  // namespace telegrad
