// The daemon's log: one line per event on stderr,
//   2026-01-31T12:00:00.000000Z INFO session_opened session=1 peer="ipv4:127.0.0.1:4242"
// Values that are not plain words are quoted and escaped, so that a client cannot forge a line.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/strings.h"

namespace telegrad {

// The limit for texts that a client sent, so that a log line stays short.
inline constexpr size_t kMaxLogged = 256;

enum class LogLevel : int { kDebug, kInfo, kWarning, kError, kOff };

// "debug", "info", "warning", "error" or "off".
std::optional<LogLevel> LogLevelFromText(std::string_view text);
void SetLogLevel(LogLevel level);
LogLevel CurrentLogLevel();

struct LogField {
  template <typename T>
  LogField(std::string_view key, const T& value) : key(key), value(StrCat(value)) {}
  std::string_view key;
  std::string value;
};

void Log(LogLevel level, std::string_view event, std::span<const LogField> fields = {});
inline void Log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  Log(level, event, std::span(fields.begin(), fields.size()));
}

// The line without its newline; what Log writes.
std::string FormatLogLine(std::string_view time, LogLevel level, std::string_view event,
                          std::span<const LogField> fields);

}  // namespace telegrad
