#include "server/serving/log_settings.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "engine/base/status.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

constexpr std::string_view kVerbose = "log_verbose_level";
// The switches, the least severity first; before them is kVerbose.
constexpr std::pair<std::string_view, LogLevel> kSwitches[] = {{"log_info", LogLevel::kInfo},
                                                               {"log_warning", LogLevel::kWarning},
                                                               {"log_error", LogLevel::kError}};
// What is always so here, and may be said as it is.
constexpr std::pair<std::string_view, std::string_view> kFixedTexts[] = {{"log_file", ""},
                                                                         {"log_format", "default"}};

std::string TextOf(const LogSettingValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* number = std::get_if<int64_t>(&value)) return StrCat(*number);
  return std::string(Clip(std::get<std::string>(value), 64));
}

absl::Status Check(const std::string& name, const LogSettingValue& value) {
  for (const auto& [fixed, text] : kFixedTexts) {
    if (name != fixed) continue;
    const auto* said = std::get_if<std::string>(&value);
    if (said != nullptr && *said == text) return absl::OkStatus();
    return Unimplemented(name, " cannot be chosen; lines go to stderr, in one format");
  }
  if (name == kVerbose) {
    const auto* number = std::get_if<int64_t>(&value);
    if (number != nullptr && *number >= 0) return absl::OkStatus();
    return InvalidArgument(name, " is ", TextOf(value), ", expected a number of at least 0");
  }
  for (const auto& [known, level] : kSwitches) {
    if (name != known) continue;
    if (std::holds_alternative<bool>(value)) return absl::OkStatus();
    return InvalidArgument(name, " is ", TextOf(value), ", expected true or false");
  }
  return InvalidArgument("there is no log setting '", Clip(name, 64), "'");
}

}  // namespace

LogValues GetLogSettings() {
  const LogLevel level = CurrentLogLevel();
  LogValues out = {{std::string(kVerbose), int64_t{level == LogLevel::kDebug ? 1 : 0}}};
  for (const auto& [name, from] : kSwitches) out[std::string(name)] = level <= from;
  for (const auto& [name, text] : kFixedTexts) out[std::string(name)] = std::string(text);
  return out;
}

absl::Status SetLogSettings(const LogValues& values) {
  for (const auto& [name, value] : values) TG_RETURN_IF_ERROR(Check(name, value));
  LogValues next = GetLogSettings();
  for (const auto& [name, value] : values) next[name] = value;
  // From the least severity up: once one is on, all others are.
  bool on = std::get<int64_t>(next[std::string(kVerbose)]) > 0;
  LogLevel level = on ? LogLevel::kDebug : LogLevel::kOff;
  for (const auto& [name, from] : kSwitches) {
    const bool this_on = std::get<bool>(next[std::string(name)]);
    if (on && !this_on) {
      return InvalidArgument(name,
                             " is false, and a lower severity is written; lines are written "
                             "from a least severity on, so switch that one off, too");
    }
    if (this_on && !on) level = from;
    on = this_on;
  }
  if (level == CurrentLogLevel()) return absl::OkStatus();
  SetLogLevel(level);
  Log(LogLevel::kWarning, "log_level", {{"level", static_cast<int>(level)}});
  return absl::OkStatus();
}

}  // namespace telegrad
