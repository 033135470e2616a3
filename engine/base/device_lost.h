// The error of a device that is lost, and of what was lost with it: UNAVAILABLE, with a mark by
// which it is told from other errors of that code. The device comes back as a new generation, while
// of others of that code the same may be tried again.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace telegrad {

// `why` names the device and its generation.
absl::Status DeviceLostError(std::string_view why);
bool IsDeviceLost(const absl::Status& status);

}  // namespace telegrad
