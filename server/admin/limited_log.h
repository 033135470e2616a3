// Limits log lines that any peer can cause in any number: a few lines of each event are written in
// each second, and the next line states how many were left out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/base/clock.h"
#include "engine/base/mutex.h"
#include "server/admin/log.h"

namespace telegrad {

// The limit of one event. Thread-safe.
class LimitedLog {
 public:
  static constexpr int kLinesPerSecond = 10;

  LimitedLog(LogLevel level, std::string_view event, const Clock* clock = Clock::Steady())
      : level_(level), event_(event), clock_(clock) {}

  void Write(std::initializer_list<LogField> fields);

 private:
  const LogLevel level_;
  const std::string event_;
  const Clock* const clock_;
  Mutex mutex_;
  int64_t ends_ TG_GUARDED_BY(mutex_) = INT64_MIN;  // the second in which lines_ were written
  int lines_ TG_GUARDED_BY(mutex_) = 0;
  int64_t left_out_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace telegrad
