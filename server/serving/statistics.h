// The counters of a version of a model: the figures of the protocol's statistics extension.
#pragma once

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace telegrad {

struct DurationSum {
  uint64_t count = 0, ns = 0;
  void Add(int64_t duration_ns) {
    ++count;
    ns += static_cast<uint64_t>(duration_ns > 0 ? duration_ns : 0);
  }
};

// When a batch passed from one phase into the next, as the clock has it.
struct BatchTimes {
  int64_t taken_ns = 0;     // off the queue
  int64_t gathered_ns = 0;  // its inputs are in place
  int64_t run_ns = 0;       // its run has ended
  int64_t done_ns = 0;      // its outputs are ready
};

enum class FailureReason : uint8_t { kRejected, kCanceled, kBackend, kOther };
inline constexpr int kNumFailureReasons = 4;

inline FailureReason ReasonOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return FailureReason::kRejected;
    case absl::StatusCode::kCancelled:
      return FailureReason::kCanceled;
    case absl::StatusCode::kInternal:
      return FailureReason::kBackend;
    default:
      return FailureReason::kOther;
  }
}

struct StatisticsSnapshot {
  struct BatchSums {
    DurationSum input, infer, output;
  };
  uint64_t last_ms = 0;     // since the epoch, of the last request; 0: none
  uint64_t inferences = 0;  // rows of batches, or requests where the model does not batch
  uint64_t executions = 0;  // runs
  DurationSum success, fail, queue, input, infer, output;
  DurationSum hit, miss;  // of the response cache: answers from it, and requests that it had not
  uint64_t failures[kNumFailureReasons] = {};
  std::map<int64_t, BatchSums> batches = {};  // by size
  int64_t pending = 0;                        // requests taken and not answered
};

// Thread-safe.
class ServingStatistics {
 public:
  void Arrived() {
    const MutexLock lock(mutex_);
    ++now_.pending;
  }
  void Ran(int64_t rows, const BatchTimes& times) {
    const MutexLock lock(mutex_);
    ++now_.executions;
    StatisticsSnapshot::BatchSums& sums = now_.batches[rows];
    sums.input.Add(times.gathered_ns - times.taken_ns);
    sums.infer.Add(times.run_ns - times.gathered_ns);
    sums.output.Add(times.done_ns - times.run_ns);
  }
  void Succeeded(int64_t rows, int64_t arrived_ns, const BatchTimes& times, uint64_t now_ms) {
    const MutexLock lock(mutex_);
    --now_.pending;
    now_.last_ms = now_ms;
    now_.inferences += static_cast<uint64_t>(rows);
    now_.success.Add(times.done_ns - arrived_ns);
    now_.queue.Add(times.taken_ns - arrived_ns);
    now_.input.Add(times.gathered_ns - times.taken_ns);
    now_.infer.Add(times.run_ns - times.gathered_ns);
    now_.output.Add(times.done_ns - times.run_ns);
  }
  // An answer from the response cache.
  void Hit(int64_t duration_ns, uint64_t now_ms) {
    const MutexLock lock(mutex_);
    now_.last_ms = now_ms;
    now_.success.Add(duration_ns);
    now_.hit.Add(duration_ns);
  }
  void Missed(int64_t duration_ns) {
    const MutexLock lock(mutex_);
    now_.miss.Add(duration_ns);
  }
  void Failed(FailureReason reason, int64_t duration_ns, uint64_t now_ms) {
    const MutexLock lock(mutex_);
    --now_.pending;
    now_.last_ms = now_ms;
    now_.fail.Add(duration_ns);
    ++now_.failures[static_cast<int>(reason)];
  }
  StatisticsSnapshot Snapshot() const {
    const MutexLock lock(mutex_);
    return now_;
  }

 private:
  mutable Mutex mutex_;
  StatisticsSnapshot now_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
