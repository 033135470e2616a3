// Counts the lines of the current second; those above the limit are only counted, and the count
// is in the next line.
#include "server/admin/limited_log.h"

#include <utility>
#include <vector>

namespace telegrad {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

void LimitedLog::Write(std::initializer_list<LogField> fields) {
  int64_t left_out;
  {
    const MutexLock lock(mutex_);
    if (const int64_t now = clock_->Ns(); now >= ends_) {
      ends_ = now + kSecondNs;
      lines_ = 0;
    }
    if (lines_ == kLinesPerSecond) {
      ++left_out_;
      return;
    }
    ++lines_;
    left_out = std::exchange(left_out_, 0);
  }
  std::vector<LogField> all(fields);
  if (left_out > 0) all.emplace_back("left_out", left_out);
  Log(level_, event_, all);
}

}  // namespace telegrad
