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

// Whether WriteFile could write the file now: for programs that write at their end what took them
// long to compute. FAILED_PRECONDITION with the path, the reason and what to do.
absl::Status CheckWritable(const std::string& path);
// The same of a file that is written beside its path and then takes the place of what was there, as
// SaveFile does (engine/frontend/io/byte_sink.h).
absl::Status CheckReplaceable(const std::string& path);

}  // namespace telegrad
