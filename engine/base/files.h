// Whole files in and out, for the readers and writers of tensor files, and whether a file can be
// written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace telegrad {

// RESOURCE_EXHAUSTED if the file is longer than `limit`.
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t limit = int64_t{1} << 40);
absl::Status WriteFile(const std::string& path, std::string_view bytes);

// Whether WriteFile could write this file now. Programs that compute for a long time and write at
// their end check this first. FAILED_PRECONDITION with the path, the reason and what to do.
absl::Status CheckWritable(const std::string& path);
// Whether SaveFile (engine/frontend/io/byte_sink.h) could write this file now: it makes a new file
// in the folder and gives it the name of the old one. Errors are those of CheckWritable.
absl::Status CheckReplaceable(const std::string& path);

}  // namespace telegrad
