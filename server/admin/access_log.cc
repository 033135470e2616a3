#include "server/admin/access_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int64_t kNsInSecond = 1'000'000'000;

// Does not wait for a reader where it is a pipe.
UniqueFd OpenForAppending(const std::string& path) {
  return UniqueFd(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640));
}

bool SameFile(int file, const std::string& path) {
  struct stat here, there;
  return fstat(file, &here) == 0 && stat(path.c_str(), &there) == 0 &&
         here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

}  // namespace

absl::StatusOr<std::unique_ptr<AccessLog>> AccessLog::Open(std::string path, Metrics* metrics,
                                                           const Clock* clock) {
  UniqueFd file = OpenForAppending(path);
  if (!file.valid()) {
    return InvalidArgument("--access-log ", path, ": ", std::strerror(errno));
  }
  return std::unique_ptr<AccessLog>(
      new AccessLog(std::move(path), std::move(file), metrics, clock));
}

// Keeps the file that it has where there is no descriptor for another one.
void AccessLog::ReopenLocked() {
  if (file_.valid() && SameFile(file_.get(), path_)) return;
  UniqueFd file = OpenForAppending(path_);
  if (!file.valid()) return;
  file_ = std::move(file);
  whole_ = true;
}

void AccessLog::Write(std::string_view event, std::initializer_list<LogField> fields) {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  std::string line = FormatLogLine(time, LogLevel::kInfo, event, fields) + "\n";
  bool written = false;
  {
    const MutexLock lock(mutex_);
    if (const int64_t now = clock_.Ns() / kNsInSecond; now != second_) {
      second_ = now;
      lines_ = 0;
      ReopenLocked();
    }
    if (++lines_ <= kLinesPerSecond) {
      // What a full disk has cut off ends before the next line begins.
      if (!whole_) line.insert(line.begin(), '\n');
      const ssize_t n = write(file_.get(), line.data(), line.size());
      written = n == static_cast<ssize_t>(line.size());
      if (n > 0) whole_ = written;
    }
  }
  metrics_.Add(written ? Metric::kAccessLines : Metric::kAccessLinesLost);
}

void AccessLog::Take(const TraceSpan& span) {
  if (!span.whole) return;
  Write("operation", {{"name", span.name},
                      {"session", span.session},
                      {"operation", span.operation},
                      {"tenant", span.tenant},
                      {"us", (span.end_ns - span.begin_ns) / 1000},
                      {"status", absl::StatusCodeToString(span.code)}});
}

}  // namespace telegrad
