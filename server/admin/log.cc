// Formats a line and writes it to standard error by one call, so that lines of several threads
// do not mix.
#include "server/admin/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace telegrad {
namespace {

constexpr std::string_view kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
std::atomic<LogLevel> g_level{LogLevel::kInfo};

bool IsPlain(std::string_view text) {
  for (const unsigned char c : text) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f) return false;
  }
  return !text.empty();
}

}  // namespace

std::optional<LogLevel> LogLevelFromText(std::string_view text) {
  constexpr std::string_view kTexts[] = {"debug", "info", "warning", "error", "off"};
  for (int i = 0; i < 5; ++i) {
    if (text == kTexts[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

void SetLogLevel(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }
LogLevel CurrentLogLevel() { return g_level.load(std::memory_order_relaxed); }

std::string FormatLogLine(std::string_view time, LogLevel level, std::string_view event,
                          std::span<const LogField> fields) {
  std::string line = StrCat(time, " ", kNames[static_cast<int>(level)], " ", event);
  for (const LogField& field : fields) {
    StrAppend(&line, " ", field.key, "=");
    if (IsPlain(field.value)) {
      line += field.value;
    } else {
      StrAppend(&line, "\"", absl::CEscape(field.value), "\"");
    }
  }
  return line;
}

void Log(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  if (level < g_level.load(std::memory_order_relaxed) || level >= LogLevel::kOff) return;
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  std::string line = FormatLogLine(time, level, event, fields);
  line += '\n';
  // One write per line keeps lines of different threads apart. A failure cannot be reported
  // anywhere.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace telegrad
