// A thread takes the lines that wait and appends them to the file without waiting for the disk.
// It opens the file again when the path names another one.
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
                                                           const Clock* clock, WriteFile write) {
  UniqueFd file = OpenForAppending(path);
  if (!file.valid()) {
    return InvalidArgument("--access-log ", path, ": ", std::strerror(errno));
  }
  return std::unique_ptr<AccessLog>(
      new AccessLog(std::move(path), std::move(file), metrics, clock, std::move(write)));
}

AccessLog::AccessLog(std::string path, UniqueFd file, Metrics* metrics, const Clock* clock,
                     WriteFile write)
    : path_(std::move(path)),
      metrics_(*metrics),
      clock_(*clock),
      write_(std::move(write)),
      file_(std::move(file)) {
  thread_ = std::thread([this] { Loop(); });
}

AccessLog::~AccessLog() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

ssize_t AccessLog::WriteWhatFits(int file, std::string_view text) {
  return write(file, text.data(), text.size());
}

// A tenant that has many lines in this second leaves room for those that come later.
bool AccessLog::HasRoomLocked(std::string_view tenant) {
  if (const int64_t now = clock_.Ns() / kNsInSecond; now != second_) {
    second_ = now;
    lines_ = 0;
    lines_of_.clear();
  }
  auto of = lines_of_.find(tenant);
  if (of == lines_of_.end()) of = lines_of_.emplace(tenant, 0).first;
  if (of->second >= kLinesPerSecond - lines_) return false;
  ++of->second;
  ++lines_;
  return true;
}

void AccessLog::Write(std::string_view tenant, std::string_view event,
                      std::initializer_list<LogField> fields) {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  std::string line = FormatLogLine(time, LogLevel::kInfo, event, fields) + "\n";
  bool lost = true;
  {
    const MutexLock lock(mutex_);
    if (HasRoomLocked(tenant)) lost = waiting_.Add(tenant, std::move(line));
  }
  if (lost) metrics_.Add(Metric::kAccessLinesLost);
  wake_.notify_one();
}

void AccessLog::Loop() {
  ReleasableLock lock(mutex_);
  while (true) {
    while (!stop_ && waiting_.empty()) wake_.wait(lock);
    if (waiting_.empty()) return;
    std::string line = waiting_.TakeOldest();
    lock.unlock();
    WriteLine(std::move(line));
    lock.lock();
  }
}

void AccessLog::WriteLine(std::string line) {
  if (const int64_t now = clock_.Ns() / kNsInSecond; now != looked_) {
    looked_ = now;
    Reopen();
  }
  // What a full disk has cut off ends before the next line begins.
  if (!whole_) line.insert(line.begin(), '\n');
  const ssize_t n = write_(file_.get(), line);
  const bool written = n == static_cast<ssize_t>(line.size());
  if (n > 0) whole_ = written;
  metrics_.Add(written ? Metric::kAccessLines : Metric::kAccessLinesLost);
}

// Keeps the file that it has where there is no descriptor for another one.
void AccessLog::Reopen() {
  if (file_.valid() && SameFile(file_.get(), path_)) return;
  UniqueFd file = OpenForAppending(path_);
  if (!file.valid()) return;
  file_ = std::move(file);
  whole_ = true;
}

void AccessLog::Take(const TraceSpan& span) {
  if (!span.whole) return;
  Write(span.tenant, "operation",
        {{"name", span.name},
         {"session", span.session},
         {"operation", span.operation},
         {"tenant", span.tenant},
         {"us", (span.end_ns - span.begin_ns) / 1000},
         {"status", absl::StatusCodeToString(span.code)}});
}

}  // namespace telegrad
