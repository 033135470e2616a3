// The access log: a line for each session that has ended, and for each operation that is traced,
// in the form of log.h:
//   2026-01-31T12:00:00.000000Z INFO session session=1 tenant=a ms=12 status=OK operations=5 ...
//   2026-01-31T12:00:00.000000Z INFO operation name=run session=1 operation=4 tenant=a us=310 ...
// A disk that takes no line, and more lines than a second has room for, cost those lines and a
// count, never a call.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/base/unique_fd.h"
#include "server/admin/log.h"
#include "server/admin/metrics.h"
#include "server/admin/tracer.h"

namespace telegrad {

// Thread-safe.
class AccessLog final : public SpanSink {
 public:
  static constexpr int64_t kLinesPerSecond = 10'000;

  // Appends to the file; INVALID_ARGUMENT where it cannot be opened. It is opened again when
  // something else has its name, as after a rotation. `metrics` and the clock outlive this.
  static absl::StatusOr<std::unique_ptr<AccessLog>> Open(std::string path, Metrics* metrics,
                                                         const Clock* clock = Clock::Steady());

  void Write(std::string_view event, std::initializer_list<LogField> fields);
  void Take(const TraceSpan& span) override;  // a line for a whole operation

 private:
  AccessLog(std::string path, UniqueFd file, Metrics* metrics, const Clock* clock)
      : path_(std::move(path)), metrics_(*metrics), clock_(*clock), file_(std::move(file)) {}
  void ReopenLocked() TG_REQUIRES(mutex_);

  const std::string path_;
  Metrics& metrics_;
  const Clock& clock_;
  Mutex mutex_;
  UniqueFd file_ TG_GUARDED_BY(mutex_);
  int64_t second_ TG_GUARDED_BY(mutex_) = -1;  // of the clock, in which lines_ were written
  int64_t lines_ TG_GUARDED_BY(mutex_) = 0;
  bool whole_ TG_GUARDED_BY(mutex_) = true;  // the last line has its end
};

}  // namespace telegrad
