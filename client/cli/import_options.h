// The flags --shape and --dim, which tell sizes that a model leaves open.
#pragma once

#include "absl/status/statusor.h"
#include "engine/base/flags.h"
#include "engine/frontend/onnx/import.h"

namespace telegrad::cli {

absl::StatusOr<ImportOptions> ImportOptionsOf(const Flags& flags);

// --dim NAME=MIN..MAX of `telegrad run`.
absl::StatusOr<std::map<std::string, DimRange, std::less<>>> DimRangesOf(const Flags& flags);

}  // namespace telegrad::cli
