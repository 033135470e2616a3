// The daemon's log by the settings of the protocol's logging extension, which has a switch for each
// severity; here there is one least severity, so that a switch is on with all above it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>

#include "absl/status/status.h"

namespace telegrad {

using LogSettingValue = std::variant<bool, int64_t, std::string>;
using LogValues = std::map<std::string, LogSettingValue>;

LogValues GetLogSettings();
// All or nothing. INVALID_ARGUMENT for a setting, type or value that there is not, and for
// severities with a gap; UNIMPLEMENTED for one that is known and cannot be chosen.
absl::Status SetLogSettings(const LogValues& values);

}  // namespace telegrad
