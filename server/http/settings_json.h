// Settings of tracing and logging as JSON.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/serving/log_settings.h"
#include "server/serving/trace_settings.h"

namespace telegrad {

// INVALID_ARGUMENT for a body that is no object of such settings. An empty one has none.
absl::StatusOr<TraceValues> ParseTraceSettings(std::string_view body);
absl::StatusOr<LogValues> ParseLogSettings(std::string_view body);

std::string TraceSettingsJson(const TraceValues& values);
std::string LogSettingsJson(const LogValues& values);

}  // namespace telegrad
