// The access log: a line for each session that has ended, and for each operation that is traced,
// in the form of log.h:
//   2026-01-31T12:00:00.000000Z INFO session session=1 tenant=a ms=12 status=OK operations=5 ...
//   2026-01-31T12:00:00.000000Z INFO operation name=run session=1 operation=4 tenant=a us=310 ...
// A thread writes them, so a disk that is slow or hangs holds nothing up but this thread. A disk
// that takes no line, more lines than wait for it, and more than a second has room for cost those
// lines and a count, never a call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"
#include "server/admin/fair_backlog.h"
#include "server/admin/log.h"
#include "server/admin/metrics.h"
#include "server/admin/tracer.h"

namespace telegrad {

// Thread-safe.
class AccessLog final : public SpanSink {
 public:
  // In a second a tenant has as many lines as it leaves to all others: the first one half of these,
  // the next one a quarter.
  static constexpr int64_t kLinesPerSecond = 20'000;
  static constexpr size_t kMostWaiting = 16'384;  // lines, see FairBacklog
  // As write(2), for a file that does not wait for a reader.
  using WriteFile = std::function<ssize_t(int file, std::string_view text)>;

  // Appends to the file; INVALID_ARGUMENT where it cannot be opened. It is opened again when
  // something else has its name, as after a rotation. `metrics` and the clock outlive this.
  static absl::StatusOr<std::unique_ptr<AccessLog>> Open(std::string path, Metrics* metrics,
                                                         const Clock* clock = Clock::Steady(),
                                                         WriteFile write = WriteWhatFits);
  // Writes the lines that wait.
  ~AccessLog() override;

  // Counts as a line of the tenant.
  void Write(std::string_view tenant, std::string_view event,
             std::initializer_list<LogField> fields);
  void Take(const TraceSpan& span) override;  // a line for a whole operation

 private:
  AccessLog(std::string path, UniqueFd file, Metrics* metrics, const Clock* clock, WriteFile write);
  static ssize_t WriteWhatFits(int file, std::string_view text);
  bool HasRoomLocked(std::string_view tenant) TG_REQUIRES(mutex_);
  void Loop();
  void WriteLine(std::string line);
  void Reopen();

  const std::string path_;
  Metrics& metrics_;
  const Clock& clock_;
  const WriteFile write_;

  Mutex mutex_;
  ConditionVariable wake_;
  FairBacklog<std::string> waiting_ TG_GUARDED_BY(mutex_){kMostWaiting};
  int64_t second_ TG_GUARDED_BY(mutex_) = -1;  // of the clock, in which these lines came
  int64_t lines_ TG_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int64_t, std::less<>> lines_of_ TG_GUARDED_BY(mutex_);
  bool stop_ TG_GUARDED_BY(mutex_) = false;

  // Of the thread.
  UniqueFd file_;
  int64_t looked_ = -1;  // the second in which it looked whether the file has still that name
  bool whole_ = true;    // the last line has its end
  std::thread thread_;
};

}  // namespace telegrad
